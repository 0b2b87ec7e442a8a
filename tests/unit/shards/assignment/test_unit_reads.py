"""The units of a shard by name: a renamed topic is where it was created."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import TopicName, parse_topic
from shards.assignment.unit_reads import load_own
from shards.domain.states import StateKind
from shards.domain.topic import Topic

OWN, FOREIGN, RENAMED = (parse_topic(f"persistent://acme/orders/{local}") for local in "abc")


def topic(name: TopicName, slot: int) -> Topic:
    return Topic(f"{slot:04x}{0:020x}", name.base_text, 0, 1, "n", 1, ())


def loaded(names: Sequence[TopicName], *, former_names: int, born_at: int) -> list[str]:
    """Return the names that a shard with the slots of ``OWN`` and ``born_at`` takes for its own.

    It has a row of each name, as long as it was not removed behind a move.
    """
    slots = {slot_of(OWN.routing_key), 7}
    rows = {name.text: topic(name, slot_of(name.routing_key)) for name in (OWN, FOREIGN)}
    rows[RENAMED.text] = topic(RENAMED, born_at)
    totals = {StateKind.FORMER_NAME: former_names}
    state: Any = SimpleNamespace(
        slots=SimpleNamespace(has=slots.__contains__), reads=SimpleNamespace(total=totals.get)
    )
    units: Any = SimpleNamespace(load=lambda asked: [(rows[each.text], None) for each in asked])
    return [each.name for each, _ in load_own(state, units, names) if each is not None]


@pytest.mark.parametrize(("born_at", "is_own"), [(7, True), (8, False)])
def test_a_renamed_topic_is_its_homes_whatever_slot_its_name_has(
    born_at: int, is_own: bool
) -> None:
    names = [OWN, FOREIGN, RENAMED]

    found = loaded(names, former_names=1, born_at=born_at)

    assert found == [OWN.text] + [RENAMED.text] * is_own


def test_without_renamed_topics_no_other_shards_names_are_read() -> None:
    assert loaded([OWN, FOREIGN, RENAMED], former_names=0, born_at=7) == [OWN.text]
