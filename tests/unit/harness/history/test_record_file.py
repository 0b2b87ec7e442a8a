"""Histories on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from nextgen.harness.history.model import (
    FORMAT_VERSION,
    Drained,
    Fault,
    FinalItem,
    FinalListing,
    LogEvent,
    Observation,
    Operation,
    OperationKind,
    Publish,
    Received,
    Record,
    Run,
    SnapshotItem,
    ViewHash,
    WatchOpened,
    WatchProgress,
    WatchReset,
    WatchSnapshot,
    failed,
)
from nextgen.harness.history.record_file import (
    BadHistory,
    Recorder,
    encode,
    history_of,
    load_history,
    read_records,
)
from nextgen.kernel.limits.stream import HISTORY_LINE_BYTES_MAX
from tests.support.history.world import World

RUN = Run("run-1", 0, 100, 7, ("acme",), "again --seed 7")
ASKED = Operation("c", 1, OperationKind.CREATE, "acme", 1, argument={"properties": {"a": "b"}})
ANSWERED = replace(ASKED, returned_ns=2, outcome="ok", value={"id": "x"}, shard=1, position=3)
ONE_OF_EACH: tuple[Record, ...] = (
    RUN,
    ANSWERED,
    Publish("t", "p", 1, 2, 3, 4, 5, 6, 7, "id"),
    Received("c", "t", "p", 1, 4, 5, 6, 7),
    Drained("c", "t"),
    WatchOpened("w", 1, 2, ("topic",), "acme", ("a", "b"), 9),
    WatchReset("w", 1, 2),
    SnapshotItem("w", 1, 2, "topic", "t", {"id": "x", "version": 3, "properties": {}}),
    WatchSnapshot("w", 1, 2, 9),
    Observation("w", 1, 2, 10, "topic_assigned", "t", 4),
    WatchProgress("w", 1, 2, 11),
    LogEvent(1, 10, 2, "topic_assigned", "t", "x", "p1", 4, "b", "s", "moved", "aa", {"k": "v"}),
    FinalItem("t", "x", 3, {"k": "v"}),
    FinalListing("acme"),
    ViewHash(1, "n", 9, "ff"),
    Fault("kill", "n", 1, 2, "why", (1, 2)),
)


def write(path: Path, *records: Record) -> None:
    with Recorder(path) as recorder:
        recorder.write_all(records)


def test_every_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write(path, *ONE_OF_EACH)

    assert {type(each) for each in ONE_OF_EACH} == set(get_args(Record))
    assert tuple(read_records(path)) == ONE_OF_EACH


def test_a_history_in_many_files_is_one(tmp_path: Path) -> None:
    history = World(3).history()
    write(tmp_path / "load.jsonl", *history.operations, *history.publishes)
    write(tmp_path / "watch.jsonl", *history.watch_records, *history.faults)
    write(tmp_path / "run.jsonl", history.run, *history.received, *history.drained)
    write(tmp_path / "log.jsonl", *history.log, *history.final_items)
    write(tmp_path / "views.jsonl", *history.final_listings, *history.view_hashes)

    loaded = load_history(tmp_path)

    assert loaded == replace(
        history, faults=tuple(sorted(history.faults, key=lambda fault: fault.began_ns))
    )


def test_the_later_record_of_an_operation_replaces_the_earlier(tmp_path: Path) -> None:
    sent = Publish("t", "p", 1, 2)
    acked = replace(sent, acked_ns=5, ledger=1, entry=0)
    in_flight = replace(ASKED, op_id=2)

    history = history_of([RUN, ASKED, sent, in_flight, ANSWERED, acked])

    assert history.operations == (ANSWERED, in_flight)
    assert history.publishes == (acked,)


def test_a_torn_last_line_is_left_out_and_gone_on_behind(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    write(path, RUN, ASKED)
    whole = path.read_bytes()
    for cut in range(1, len(encode(ASKED))):
        path.write_bytes(whole[:-cut])
        assert list(read_records(path)) == [RUN]

    write(path, ANSWERED)

    assert list(read_records(path)) == [RUN, ANSWERED]


def test_a_torn_first_line_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_bytes(b'{"form')

    assert list(read_records(path)) == []
    write(path, RUN)
    assert list(read_records(path)) == [RUN]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b"7", b'{"record":"Nothing"}', b"{}", b'{"record":"Drained"}', b"\xff"],
)
def test_damage_inside_a_file_is_reported_with_its_offset(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    write(path, RUN)
    with path.open("ab") as file:
        file.write(line + b"\n" + encode(ASKED))

    with pytest.raises(BadHistory, match=r"bad\.jsonl:3"):
        load_history(tmp_path)


@pytest.mark.parametrize("header", [{"format": "x", "version": 1}, [], {}])
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, header: object) -> None:
    (tmp_path / "other.jsonl").write_text(json.dumps(header) + "\n")

    with pytest.raises(BadHistory, match=r"other\.jsonl"):
        load_history(tmp_path)


def test_a_later_format_is_refused_and_a_field_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    header = {"format": "nextgen-history", "version": FORMAT_VERSION}
    more = json.loads(encode(RUN)) | {"colour": "red"}
    path.write_text(f"{json.dumps(header)}\n{json.dumps(more)}\n")
    assert load_history(tmp_path).run == RUN

    header["version"] = FORMAT_VERSION + 1
    path.write_text(f"{json.dumps(header)}\n{json.dumps(more)}\n")
    with pytest.raises(BadHistory, match=f"format {FORMAT_VERSION + 1}"):
        load_history(tmp_path)


def test_a_history_has_one_run_and_some_files(tmp_path: Path) -> None:
    with pytest.raises(BadHistory, match="holds no"):
        load_history(tmp_path)
    with pytest.raises(BadHistory, match="one Run"):
        history_of([ASKED])
    with pytest.raises(BadHistory, match="one Run"):
        history_of([RUN, RUN])


def test_a_line_may_be_so_long_and_no_longer() -> None:
    empty = len(encode(Fault("kill", "n", 1, 2)))
    longest = Fault("kill", "n", 1, 2, "x" * (HISTORY_LINE_BYTES_MAX - empty))

    assert len(encode(longest)) == HISTORY_LINE_BYTES_MAX
    with pytest.raises(ValueError, match="bytes"):
        encode(replace(longest, detail=longest.detail + "x"))


def test_a_history_may_have_so_many_records_and_no_more() -> None:
    assert history_of([RUN, ASKED, ANSWERED], records_max=3).operations == (ANSWERED,)
    with pytest.raises(BadHistory, match="at most 2"):
        history_of([RUN, ASKED, ANSWERED], records_max=2)


def test_the_outcome_of_a_failure_says_that_it_did_not_happen() -> None:
    denied = replace(ASKED, outcome=failed("UNAVAILABLE"))

    assert denied.is_failed
    assert not denied.may_have_happened
    assert ASKED.may_have_happened
