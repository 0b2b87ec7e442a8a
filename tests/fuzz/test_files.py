"""Files that a person may break: whatever is in them, a reader says so in one line.

Every file is one that the product wrote, with each of its values replaced by each of what somebody
or something may leave there, cut short, nested too deep, or no text at all.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nextgen.bulk.manifest import LOAD_MANIFEST, LoadFile, LoadManifest, read_load_manifest
from nextgen.bulk.progress import LOADED, fingerprint, read_loaded
from nextgen.cli.brokers.quota_commands import read_file
from nextgen.cli.local.cluster_state import STATE_FILE, read_state, write_state
from nextgen.cli.local.plan import MINIMAL, PLAN_FILE, load_plan, make_plan
from nextgen.cli.observability.trace_command import Span, read_spans
from nextgen.export.format.manifest import (
    ExportFile,
    Manifest,
    ShardExported,
    decode_manifest,
    encode_manifest,
)
from nextgen.export.stores.layout import DataName, date_of
from nextgen.harness.chaos.faults.hooks import load_hooks
from nextgen.harness.chaos.schedule import OF_CLUSTER, Group, Schedule, make_schedule
from nextgen.harness.history.model import Fault
from nextgen.harness.history.record_file import BadHistory, Recorder, read_records
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.quota_file import QuotaFile, to_bytes
from nextgen.kernel.limits.cluster import ERROR_LINE_CHARACTERS_MAX
from nextgen.kernel.routing.slots import initial_table
from nextgen.runtime.lifecycle.data_directory import IDENTITY_FILE, DataDirectory, identity_of
from nextgen.runtime.lifecycle.exit_code import CheckFailed, code_of, print_error

SEED = 16
CUTS = 40
FLIPS = 60
DEPTH = 10_000
"""Deeper than any reader of JSON goes."""

WEIRD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 2**64, 10**30, 1.5, 1e308),
    *("", "x", "x" * 5_000, "[/foo]", "a\nb", "\u202eevil", "\x1b[31m", "\x00", "../../etc"),
    *([], [None], [[]], {}, {"x": 1}, ["x"] * 3),
)
RAW = ("NaN", "Infinity", "1e400", "9" * 5_000, '"\\ud800"', "nul", "{", '{"a":1,"a":2}')
"""What no value of ours becomes, in place of one."""

PLACE = "a place that no document has"


def plan_file(folder: Path) -> bytes:
    make_plan(MINIMAL).save(folder)
    return (folder / PLAN_FILE).read_bytes()


def state_file(folder: Path) -> bytes:
    write_state(folder, {"broker-1": 17})
    return (folder / STATE_FILE).read_bytes()


def loaded_file(folder: Path) -> bytes:
    (folder / LOAD_MANIFEST).write_text("{}")
    shard = {"rows": 3, "last_name": "n", "refusals": {"EXISTS": 1}}
    return json.dumps({"load": fingerprint(folder), "shards": {"1": shard}}).encode()


def history_file(folder: Path) -> bytes:
    with Recorder(folder / "a.jsonl") as file:
        file.write(Fault("kill", "n", 1, 2, "x"))
    return (folder / "a.jsonl").read_bytes()


def manifest_file(_folder: Path) -> bytes:
    file = ExportFile(
        path=DataName(1, date_of(0), 1, 3).path,
        first_position=1,
        last_position=3,
        rows=3,
        bytes=10,
        sha256="0" * 64,
        first_time_ms=1,
        last_time_ms=2,
        schema_version=1,
        untyped_events=0,
    )
    shard = ShardExported(position=3, last_event_sha256="0" * 64, files=(file,))
    return encode_manifest(Manifest("test", "reader", shards={1: shard}))


def load_manifest_file(_folder: Path) -> bytes:
    file = LoadFile("a.parquet", 1, 2, "0" * 64, "a", "b")
    return LoadManifest(initial_table([1]), {1: (file,)}, (file,), 1, 1, 0, 0).to_json().encode()


def identity_file(folder: Path) -> bytes:
    with DataDirectory.open(folder, cluster_id="c", node_id="n", component="broker"):
        return (folder / IDENTITY_FILE).read_bytes()


def span_file(_folder: Path) -> bytes:
    span = Span("t", "s", "", "lookup", "broker-1", 1, 2, "", {"topic": "a"})
    line = json.dumps({name: getattr(span, name) for name in Span.__slots__}).encode()
    return line + b"\n" + line + b"\n"


def schedule_file(_folder: Path) -> bytes:
    made = make_schedule(1, 1, OF_CLUSTER, dict.fromkeys(Group, 3))
    return replace(made, steps=made.steps[:3]).to_json().encode()


def hooks_file(_folder: Path) -> bytes:
    hook = {"begin": "stop {node}", "end": "start {node}", "groups": [Group.BROKER.value]}
    return json.dumps({"timeout_ms": 1_000, OF_CLUSTER[0].value: hook}).encode()


def quotas_file(_folder: Path) -> bytes:
    return to_bytes(QuotaFile(2, {"broker-1": 3}, {"acme": 4}, "ab", {"days": 7}))


WRITERS: dict[str, tuple[str, Callable[[Path], bytes], Callable[[Path], object]]] = {
    "plan": (PLAN_FILE, plan_file, lambda path: load_plan(path.parent)),
    "state of up": (STATE_FILE, state_file, lambda path: read_state(path.parent)),
    "quotas": ("quotas.json", quotas_file, read_file),
    "schedule of faults": ("faults.json", schedule_file, Schedule.load),
    "hooks of faults": ("hooks.json", hooks_file, load_hooks),
    "load manifest": (
        LOAD_MANIFEST,
        load_manifest_file,
        lambda path: read_load_manifest(path.parent),
    ),
    "progress of a load": (LOADED, loaded_file, lambda path: read_loaded(path.parent)),
    "export manifest": (
        "manifest.json",
        manifest_file,
        lambda path: decode_manifest(path.read_bytes(), path.name),
    ),
    "history": ("a.jsonl", history_file, lambda path: list(read_records(path))),
    "spans": ("a.jsonl", span_file, lambda path: list(read_spans(path))),
    "identity": (IDENTITY_FILE, identity_file, lambda path: identity_of(path.parent)),
}


def read_slot_map(path: Path) -> object:
    pytest.importorskip("pyspark")
    from pipelines.reshard.maps import table_of_file

    return table_of_file(path)


def slot_map_file(_folder: Path) -> bytes:
    return json.dumps({"version": 1, "shards": {"1": [[0, 16_383]]}}).encode()


WRITERS["map of slots"] = ("map.json", slot_map_file, read_slot_map)


def places_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a document, itself included."""
    yield place
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        yield from places_of(each, (*place, key))


def replaced(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    changed = copy.deepcopy(document)
    at = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return changed


def without(document: Any, place: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(document)
    at = changed
    for key in place[:-1]:
        at = at[key]
    del at[place[-1]]
    return changed


def broken_documents(line: bytes) -> Iterator[bytes]:
    """Yield a JSON document with each of its values replaced, missing, twice or in the way."""
    document = json.loads(line)
    for place in places_of(document):
        for value in WEIRD:
            yield json.dumps(replaced(document, place, value)).encode()
        text = json.dumps(replaced(document, place, PLACE))
        for raw in (*RAW, "[" * DEPTH, '{"a":' * DEPTH):
            yield text.replace(json.dumps(PLACE), raw).encode()
        if place:
            yield json.dumps(without(document, place)).encode()


def broken_contents(content: bytes) -> Iterator[bytes]:
    """Yield what may have become of a file, the last line of a file of lines included."""
    chooser = random.Random(SEED)
    *lines, last = content.rstrip(b"\n").split(b"\n") if is_of_lines(content) else [content]
    before = b"".join(line + b"\n" for line in lines)
    for broken in broken_documents(last):
        yield before + broken + b"\n"
        if lines:
            yield before + broken + b"\n" + last + b"\n"
    for _ in range(CUTS):
        yield content[: chooser.randrange(len(content))]
    for _ in range(FLIPS):
        flipped = bytearray(content)
        flipped[chooser.randrange(len(flipped))] ^= 1 << chooser.randrange(8)
        yield bytes(flipped)
    yield from (b"", b"\n", bytes(4_096), chooser.randbytes(4_096), b"\xef\xbb\xbf" + content)
    yield content.decode().encode("utf-16")
    yield content + b"\n" + content


def is_of_lines(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("name", WRITERS)
def test_a_broken_file_is_read_or_refused_in_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, write, read = WRITERS[name]
    content = write(tmp_path)
    path = tmp_path / file
    path.write_bytes(content)
    read(path)  # As it was written it can be read.

    refused = 0
    for broken in broken_contents(content):
        path.write_bytes(broken)
        try:
            read(path)
        except (MetadataError, CheckFailed, BadHistory) as error:
            refused += 1
            code_of(error)
            print_error(str(error))

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == refused
    assert max(map(len, lines), default=0) <= ERROR_LINE_CHARACTERS_MAX + len("nextgen: ")
    assert refused > 0 or name in ("state of up", "progress of a load")


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    file, write, read = WRITERS[name]
    write(tmp_path)
    path = tmp_path / file
    path.unlink(missing_ok=True)
    path.mkdir()
    if name in ("export manifest", "history"):
        pytest.skip("its caller finds the file and reads it")

    with contextlib.suppress(MetadataError, CheckFailed, BadHistory):
        read(path)
