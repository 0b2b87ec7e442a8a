"""A log of the cluster manager that an earlier release wrote still means the same."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest
from google.protobuf.proto import parse_length_prefixed

from cluster_manager import wire
from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.cluster import INITIAL, fold_events
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.events_pb2 import DecidedCommand
from tests.support.golden.cluster_log import described

LOGS = Path(__file__).parent / "logs"
GOLDEN = sorted(LOGS.glob("cluster-manager-*"))


def _records(directory: Path) -> list[DecidedCommand]:
    stream = BytesIO((directory / "records.binpb").read_bytes())
    records = []
    while (record := parse_length_prefixed(DecidedCommand, stream)) is not None:
        records.append(record)
    return records


def test_there_is_a_golden_log() -> None:
    assert GOLDEN


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_the_domain_folds_it_to_the_same_state(directory: Path) -> None:
    events = [
        wire.event_from_proto(event) for record in _records(directory) for event in record.events
    ]

    state = described(fold_events(INITIAL, events))

    assert state == json.loads((directory / "state.json").read_text())


@pytest.mark.parametrize("directory", GOLDEN, ids=lambda path: path.name)
def test_the_view_folds_it_to_the_same_state(directory: Path, tmp_path: Path) -> None:
    store = open_view_store(tmp_path)
    position = 1
    for index, record in enumerate(_records(directory), start=1):
        stored = Record(record.SerializeToString(), len(record.events))
        store.apply([Entry(index, 1, position, (stored,))])
        position += len(record.events)

    state, _ = StoredView(store).load()
    store.close()

    assert described(state) == json.loads((directory / "state.json").read_text())
