"""An export on an object store: nothing is renamed, a lease keeps others away."""

import json
import uuid

import fsspec
import pytest

from nextgen.export.checking.check import check_log
from nextgen.export.errors import ExportRefused
from nextgen.export.stores.objects import ObjectStore, file_system_of
from nextgen.export.stores.urls import open_store
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from nextgen.kernel.limits.stream import EXPORT_LEASE_MS, EXPORT_LEASE_RENEWED_MS
from tests.support.logs.export_logs import FakeLog, events

SMALL = FileLimits(rows=10)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}/export"


def store_at(url: str, clock: Clock) -> ObjectStore:
    return ObjectStore(url, *file_system_of(url), wall_clock_ms=clock)


async def test_an_export_to_memory_is_whole_and_goes_on(url: str) -> None:
    log = FakeLog({1: events(1, 25)})
    await export_log(log, open_store(url), limits=SMALL)
    await log.append(1, events(26, 30))
    await export_log(log, open_store(url), limits=SMALL)

    report = await check_log(open_store(url), log)

    assert (report.ok, report.events, report.files, report.findings) == (True, 30, 4, [])
    names = [name.rpartition("/")[2] for name in fsspec.filesystem("memory").find(url)]
    assert sorted(names)[-1] == "manifest.json"
    assert not [name for name in names if name.startswith(".")]


async def test_what_a_killed_run_uploaded_without_a_manifest_is_replaced(url: str) -> None:
    log = FakeLog({1: events(1, 25)})
    await export_log(log, open_store(url), limits=SMALL)
    left = f"{url}/shard=00001/date=2025-11-24/{26:020d}-{30:020d}.parquet"
    fsspec.filesystem("memory").pipe(left, b"whole, but never named")
    await log.append(1, events(26, 30))

    await export_log(log, open_store(url), limits=SMALL)

    assert (await check_log(open_store(url), log)).ok


def test_a_second_exporter_is_refused_until_the_lease_ends(url: str) -> None:
    clock = Clock()
    first, second = store_at(url, clock), store_at(url, clock)
    first.acquire()

    clock.now_ms += EXPORT_LEASE_MS - 1
    with pytest.raises(ExportRefused, match="in use by another exporter"):
        second.acquire()
    clock.now_ms += 1
    second.acquire()


def test_a_writer_that_slept_longer_than_its_lease_writes_nothing_more(url: str) -> None:
    clock = Clock()
    first, second = store_at(url, clock), store_at(url, clock)
    first.acquire()
    clock.now_ms += EXPORT_LEASE_MS
    second.acquire()
    draft = first.draft("")
    draft.write(b"late")

    for write in (
        lambda: draft.publish("shard=00001/late.parquet"),
        lambda: first.replace("manifest.json", b"late"),
        lambda: first.remove("manifest.json"),
    ):
        with pytest.raises(ExportRefused, match="taken over by another exporter"):
            write()
    draft.discard()
    first.release()
    second.confirm()
    assert {file.path for file in second.list()} == {".exporter.json"}


def test_a_lease_is_renewed_before_it_ends(url: str) -> None:
    clock = Clock()
    store = store_at(url, clock)
    store.acquire()

    for _ in range(10):
        clock.now_ms += EXPORT_LEASE_RENEWED_MS
        store.confirm()

    assert json.loads(store.read(".exporter.json"))["expires_ms"] > clock.now_ms


def test_a_released_directory_is_free_at_once(url: str) -> None:
    clock = Clock()
    first, second = store_at(url, clock), store_at(url, clock)
    first.acquire()
    first.release()

    second.acquire()


def test_a_file_that_is_there_is_not_overwritten(url: str) -> None:
    store = store_at(url, Clock())
    store.acquire()
    path = "shard=00001/date=2025-11-24/a.parquet"
    for content in (b"first", b"second"):
        draft = store.draft("")
        draft.write(content)
        if content == b"first":
            draft.publish(path)
        else:
            with pytest.raises(ExportRefused, match="is there already"):
                draft.publish(path)
            draft.discard()

    assert store.read(path) == b"first"


def test_a_url_that_no_library_knows_is_refused() -> None:
    with pytest.raises(ExportRefused, match="nowhere://"):
        open_store("nowhere://bucket/export")
