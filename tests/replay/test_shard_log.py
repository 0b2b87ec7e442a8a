"""Yesterday's log still means the same: golden logs of shards, and the views they must give."""

import json
from collections import Counter
from pathlib import Path

import pytest

from nextgen.replication.protocol.entry_codec import decode_records
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.projections.evolution import ROUTES
from shards.wire.event import decode_events
from tests.support.golden.shard_log import LOGS, dump_text
from tests.support.shards.events import entries_of
from tests.support.shards.world import MemoryView

HAVE_POLICIES = ("tenants", "namespaces", "topics")
COUNTED_LATER = "tenant_usage"
MADE_LATER = ("scalable_topics", "topic_loads", "shadow_sources", "topic_names", "former_names")
GOLDEN = sorted(LOGS.glob("shard-v*"))


def records_in(folder: Path):
    return decode_records((folder / "entries.msgpack").read_bytes())


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
@pytest.mark.parametrize("records_per_entry", [1, 4, 1_000])
def test_a_golden_log_still_gives_its_view(folder, records_per_entry):
    records = records_in(folder)
    groups = [
        records[start : start + records_per_entry]
        for start in range(0, len(records), records_per_entry)
    ]
    view = MemoryView()

    for entry in entries_of(groups):
        view.apply([entry])

    assert_same(json.loads(dump_text(view)), json.loads((folder / "view.json").read_text()))
    view.close()


def assert_same(present, golden):
    """Tables get columns at their ends; of policies an old log says nothing."""
    if COUNTED_LATER not in golden:
        assert dict(present.pop(COUNTED_LATER)) == tenant_units(golden["assignments"])
    for table in MADE_LATER:
        if table not in golden:
            assert present.pop(table) == []
    assert present.keys() == golden.keys()
    for table, rows in golden.items():
        for row, golden_row in zip(present[table], rows, strict=True):
            assert row[: len(golden_row)] == golden_row
            if table in HAVE_POLICIES:
                assert row[len(golden_row) :] in ([], [None], [None, 0], [None, 0, None])


def tenant_units(assignments):
    """Count what an old view says is assigned; its rows begin with key, name, epoch, broker."""
    return Counter(name.split("/")[2] for _, name, _, broker, *_ in assignments if broker)


def test_every_event_is_in_some_golden_log():
    seen = {
        type(event)
        for folder in GOLDEN
        for record in records_in(folder)
        for event in decode_events(DecidedCommand.FromString(record.payload))
    }

    assert seen == set(ROUTES)
