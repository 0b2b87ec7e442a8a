"""What do rows of moving slots cost those who read other rows, and the check those who write?

    .venv/bin/python benchmarks/engine/foreign_rows.py --topics 200000 --slots 1024

Fills a view on disk with topics and units, then reads it by the shard's own functions: without
foreign slots, and with ``--slots`` of them. Then times what the proposer looks at for each event
of a shard that has taken part in a move. The last line is JSON: microseconds of CPU for a row that
was looked at, the best of ``--rounds``.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id
from nextgen.replication.view.store import ViewStore
from shards.domain.assignment import TopicAssigned
from shards.domain.slot_moves.keys import slot_of_key
from shards.domain.states import StateKind
from shards.domain.topic import TopicCreated
from shards.projections.evolution import state_of
from shards.projections.fold import fold
from shards.projections.foreign import NONE_FOREIGN, ForeignSlots
from shards.projections.reading import (
    count_names,
    prefix_range,
    read_names,
    read_units_of_session,
    topic_ranges,
)
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.wire.event import DomainEvent
from tests.support.shards.events import entries_of, record_of

BATCH = 1_000
PAGE = 1_000


def events_of(topics: int) -> tuple[list[DomainEvent], list[DomainEvent]]:
    """Return the creations of ``topics`` topics, and an assignment of each to one session."""
    created: list[DomainEvent] = []
    assigned: list[DomainEvent] = []
    for number in range(topics):
        key = f"acme/orders/topic-{number:08}"
        topic_id = mint_id(slot_of(key), number.to_bytes(10, "big"))
        name = f"persistent://{key}"
        created.append(TopicCreated(topic_id, name, 0, "ns-1", 1))
        assigned.append(TopicAssigned(topic_id, "", name, 1, "b-1", "s-1", "first_lookup"))
    return created, assigned


def cpu_us(rounds: int, rows: int, work: Callable[[], object]) -> float:
    """Return the least microseconds of CPU for a row among ``rounds`` of ``work``."""
    least = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        least = min(least, time.process_time() - started)
    return round(least / rows * 1e6, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=200_000)
    parser.add_argument("--slots", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    created, assigned = events_of(options.topics)
    foreign = ForeignSlots(tuple((2 * slot, 2 * slot) for slot in range(options.slots)))
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        view = ViewStore(Path(folder) / "view", METADATA, fold)
        events = [*created, *assigned]
        groups = [[record_of(events[at : at + BATCH])] for at in range(0, len(events), BATCH)]
        for entry in entries_of(groups):
            view.apply((entry,))
        query, everything = query_of(view.reader), prefix_range("persistent://acme/")
        ranges = topic_ranges("acme/orders")
        for name, slots in (("none", NONE_FOREIGN), ("moving", foreign)):
            found[f"page_us_{name}"] = cpu_us(
                options.rounds,
                PAGE,
                lambda slots=slots: read_names(  # type: ignore[misc]
                    query, StateKind.TOPIC, ranges, after="", limit=PAGE, foreign=slots
                ),
            )
            found[f"count_us_{name}"] = cpu_us(
                options.rounds,
                options.topics,
                lambda slots=slots: count_names(  # type: ignore[misc]
                    query,
                    StateKind.TOPIC,
                    everything,
                    after="",
                    limit=options.topics + 1,
                    foreign=slots,
                ),
            )
            found[f"units_us_{name}"] = cpu_us(
                options.rounds,
                PAGE,
                lambda slots=slots: read_units_of_session(  # type: ignore[misc]
                    query, "s-1", "", PAGE, slots
                ),
            )
        view.close()
    states = [state_of(event) for event in created]
    found["state_of_us"] = cpu_us(
        options.rounds, options.topics, lambda: [state_of(event) for event in created]
    )
    found["slot_of_key_us"] = cpu_us(
        options.rounds, options.topics, lambda: [slot_of_key(*state) for state in states]
    )
    print(
        f"{options.topics} topics and units, {options.slots} foreign slots, "
        f"python {platform.python_version()}"
    )
    print(json.dumps({"topics": options.topics, "slots": options.slots, **found}))


if __name__ == "__main__":
    main()
