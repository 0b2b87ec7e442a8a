"""Loading a folder: every name is answered for, whatever the shards say in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.bulk import loader
from nextgen.bulk.blocks import blocks_of
from nextgen.bulk.errors import LoadRefused
from nextgen.bulk.loader import REFUSED, FolderLoad
from nextgen.bulk.manifest import LOAD_MANIFEST, LoadManifest
from nextgen.bulk.progress import LOADED, Loaded, read_loaded
from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    NotLeader,
    Overloaded,
    ProposalLost,
    StaleShardMap,
)
from nextgen.kernel.limits.bulk import BULK_IN_FLIGHT_MAX
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.shard_service_pb2 import (
    BulkCreateResponse,
    BulkRefusal,
    ShardRequest,
    ShardResponse,
)
from tests.support.logs.load_folders import write_load_folder

NAMES = [f"persistent://acme/orders/t-{number:05d}" for number in range(9_000)]


class FakeShards:
    """Shards that remember names; ``trouble`` is asked before each request."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.refused: set[str] = set()
        self.requests = 0
        self.under_way: dict[int, int] = {}
        self.under_way_max = 0
        self.trouble: Callable[[int], MetadataError | None] = lambda _: None
        self.lies = False

    async def call(self, shard_id: int, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        self.requests += 1
        self.under_way[shard_id] = self.under_way.get(shard_id, 0) + 1
        self.under_way_max = max(self.under_way_max, self.under_way[shard_id])
        error = self.trouble(self.requests)
        await asyncio.sleep(0)
        self.under_way[shard_id] -= 1
        if isinstance(error, ProposalLost):
            self._create(request)  # It may have happened.
        if error is not None:
            raise error
        return ShardResponse(bulk_create=self._create(request))

    def _create(self, request: ShardRequest) -> BulkCreateResponse:
        answer = BulkCreateResponse()
        for place, name in enumerate(request.bulk_create.names):
            if name in self.refused:
                answer.refusals.append(BulkRefusal(place=place, rejection_code="PARENT_NOT_FOUND"))
            elif name in self.topics:
                answer.existing += 1
            else:
                self.topics.add(name)
                answer.created += 0 if self.lies else 1
        return answer


class KnownTopics:
    """A client that finds the topics there are."""

    def __init__(self, shards: FakeShards) -> None:
        self._shards = shards

    async def get_topic(self, name: str) -> object | None:
        return name if name in self._shards.topics else None


@pytest.fixture
def shards(monkeypatch: pytest.MonkeyPatch) -> FakeShards:
    monkeypatch.setattr(loader, "PAUSE_S", 0.001)
    monkeypatch.setattr(loader, "SAVE_S", 0.0)
    return FakeShards()


@pytest.fixture
def manifest(tmp_path: Path) -> LoadManifest:
    return write_load_folder(tmp_path, NAMES, initial_table((1, 2)))


def make(tmp_path: Path, manifest: LoadManifest, shards: FakeShards) -> tuple[FolderLoad, Loaded]:
    loaded = Loaded()
    return FolderLoad(tmp_path, manifest, shards, loaded, lambda _: None), loaded


async def test_every_name_is_created_with_a_few_requests_at_a_time(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    load, loaded = make(tmp_path, manifest, shards)
    await load.run()
    assert shards.topics == set(NAMES)
    assert loaded.is_whole
    assert (loaded.total("created"), loaded.total("existing")) == (len(NAMES), 0)
    assert shards.under_way_max == BULK_IN_FLIGHT_MAX


async def test_the_same_folder_again_changes_nothing(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    await make(tmp_path, manifest, shards)[0].run()
    load, loaded = make(tmp_path, manifest, shards)
    await load.run()
    assert loaded.is_whole
    assert (loaded.total("created"), loaded.total("existing")) == (0, len(NAMES))


@pytest.mark.parametrize(
    "error",
    [Overloaded("full"), NotLeader(1), ProposalLost("gone")],
    ids=lambda e: type(e).__name__,
)
async def test_what_passes_is_waited_out(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards, error: MetadataError
) -> None:
    shards.trouble = lambda request: error if request % 3 else None
    load, loaded = make(tmp_path, manifest, shards)
    await load.run()
    assert shards.topics == set(NAMES)
    assert loaded.is_whole
    assert loaded.total("refused") == 0


async def test_what_shards_refuse_is_written_down(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    shards.refused = {NAMES[7], NAMES[-1]}
    load, loaded = make(tmp_path, manifest, shards)
    await load.run()
    assert loaded.is_whole
    assert dict(loaded.refusals) == {"PARENT_NOT_FOUND": 2}
    lines = [json.loads(line) for line in (tmp_path / REFUSED).read_text().splitlines()]
    assert {line["name"] for line in lines} == shards.refused


async def test_a_map_that_changes_ends_the_load(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    shards.trouble = lambda request: StaleShardMap("moved", 2) if request == 4 else None
    load, loaded = make(tmp_path, manifest, shards)
    with pytest.raises(LoadRefused, match="shard map changed"):
        await load.run()
    assert not loaded.is_whole


async def test_a_shard_that_takes_nothing_ends_the_load_in_time(
    tmp_path: Path,
    manifest: LoadManifest,
    shards: FakeShards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "PATIENCE_S", 0.0)
    shards.trouble = lambda _: Overloaded("full")
    with pytest.raises(Overloaded):
        await make(tmp_path, manifest, shards)[0].run()


async def test_an_answer_that_does_not_account_for_every_name_ends_the_load(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    shards.lies = True
    with pytest.raises(MetadataError, match="account for every name"):
        await make(tmp_path, manifest, shards)[0].run()


async def test_a_load_goes_on_where_it_ended(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    shards.trouble = lambda request: InvalidRequest("no") if request > 4 else None
    with pytest.raises(InvalidRequest):
        await make(tmp_path, manifest, shards)[0].run()
    told = read_loaded(tmp_path)
    assert told
    assert all(note.last_name in shards.topics for note in told.values() if note.rows)

    shards.trouble = lambda _: None
    load, loaded = make(tmp_path, manifest, shards)
    await load.skip_loaded(KnownTopics(shards))  # type: ignore[arg-type]
    skipped = loaded.total("skipped")
    assert skipped == sum(note.rows for note in told.values()) > 0
    await load.run()
    assert loaded.is_whole
    assert shards.topics == set(NAMES)


async def test_a_load_that_goes_on_still_knows_what_was_refused(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    first = {shard: blocks_of(tmp_path, files) for shard, files in manifest.shards.items()}
    shards.refused = {next(blocks)[7] for blocks in first.values()} | {max(NAMES)}
    shards.trouble = lambda request: InvalidRequest("no") if request > 6 else None
    with pytest.raises(InvalidRequest):
        await make(tmp_path, manifest, shards)[0].run()
    noted = sum(sum(note.refusals.values()) for note in read_loaded(tmp_path).values())
    assert 0 < noted < len(shards.refused)

    shards.trouble = lambda _: None
    load, loaded = make(tmp_path, manifest, shards)
    await load.skip_loaded(KnownTopics(shards))  # type: ignore[arg-type]
    assert loaded.total("refused") == noted
    await load.run()
    assert loaded.is_whole
    assert dict(loaded.refusals) == {"PARENT_NOT_FOUND": len(shards.refused)}
    lines = [json.loads(line) for line in (tmp_path / REFUSED).read_text().splitlines()]
    assert {line["name"] for line in lines} == shards.refused


async def test_notes_are_of_the_files_that_were_loaded(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    load, _ = make(tmp_path, manifest, shards)
    path = tmp_path / LOAD_MANIFEST
    path.write_text(path.read_text() + " ")  # Made again, while the load is under way.
    await load.run()
    assert read_loaded(tmp_path) == {}


async def test_a_folder_that_takes_no_notes_is_refused(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    (tmp_path / REFUSED).mkdir()
    with pytest.raises(LoadRefused, match="progress cannot be written"):
        await make(tmp_path, manifest, shards)[0].run()
    assert not shards.topics


async def test_a_cluster_that_has_not_what_was_loaded_is_loaded_from_the_start(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    await make(tmp_path, manifest, shards)[0].run()
    another = FakeShards()
    load, loaded = make(tmp_path, manifest, another)
    await load.skip_loaded(KnownTopics(another))  # type: ignore[arg-type]
    assert loaded.total("skipped") == 0
    await load.run()
    assert another.topics == set(NAMES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"load": 1}', '{"load": "x", "shards": []}'])
def test_notes_that_make_no_sense_are_not_believed(
    tmp_path: Path, manifest: LoadManifest, text: str
) -> None:
    (tmp_path / LOADED).write_text(text)
    assert read_loaded(tmp_path) == {}


async def test_notes_of_other_files_are_not_believed(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    await make(tmp_path, manifest, shards)[0].run()
    assert read_loaded(tmp_path)
    path = tmp_path / LOAD_MANIFEST
    path.write_text(path.read_text() + " ")
    assert read_loaded(tmp_path) == {}


async def test_notes_of_more_rows_than_there_are_are_not_believed(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    await make(tmp_path, manifest, shards)[0].run()
    told = json.loads((tmp_path / LOADED).read_text())
    told["shards"]["1"]["rows"] += 1
    (tmp_path / LOADED).write_text(json.dumps(told))
    load, loaded = make(tmp_path, manifest, shards)
    await load.skip_loaded(KnownTopics(shards))  # type: ignore[arg-type]
    assert {shard: one.skipped > 0 for shard, one in loaded.shards.items()} == {1: False, 2: True}


async def test_the_last_name_that_is_noted_is_one_that_is_there(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    shards.refused = {files[-1].last_name for files in manifest.shards.values()}
    await make(tmp_path, manifest, shards)[0].run()
    assert {note.last_name in shards.topics for note in read_loaded(tmp_path).values()} == {True}


async def test_of_many_refusals_the_first_are_written_down_and_all_are_counted(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "BULK_REFUSALS_KEPT_MAX", 3)
    shards.refused = set(NAMES[:5])
    load, loaded = make(tmp_path, manifest, shards)
    await load.run()
    assert loaded.total("refused") == 5
    assert len((tmp_path / REFUSED).read_text().splitlines()) == 3


async def test_what_was_answered_for_is_noted_when_a_load_fails(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "SAVE_S", 3_600.0)
    shards.trouble = lambda request: InvalidRequest("no") if request > 6 else None
    load, loaded = make(tmp_path, manifest, shards)
    with pytest.raises(InvalidRequest):
        await load.run()
    noted = {shard: note.rows for shard, note in read_loaded(tmp_path).items()}
    assert noted == {shard: one.rows for shard, one in loaded.shards.items()}
    assert sum(noted.values()) > 0


async def test_a_refusal_is_written_down_before_it_is_noted_as_answered(
    tmp_path: Path, manifest: LoadManifest, shards: FakeShards
) -> None:
    """Or a process that is killed in between would leave it out for ever."""
    shards.refused = set(NAMES[::500])
    seen: list[tuple[int, int]] = []

    def look(_: Loaded) -> None:
        noted = sum(sum(note.refusals.values()) for note in read_loaded(tmp_path).values())
        seen.append((noted, len((tmp_path / REFUSED).read_text().splitlines())))

    await FolderLoad(tmp_path, manifest, shards, Loaded(), look).run()
    assert any(noted for noted, _ in seen)
    assert [pair for pair in seen if pair[0] > pair[1]] == []
