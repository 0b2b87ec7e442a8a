"""What a broker holds, and which epochs may replace which."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.holding import (
    Assignment,
    Holding,
    NamespaceMetadata,
    Release,
    TenantMetadata,
    TopicMetadata,
)
from nextgen.kernel.limits import BROKER_TOMBSTONE_MS

NAME = "persistent://acme/orders/paid"
TOPIC = TopicMetadata("id-1", NAME, 0, {"retention": "1h"}, 3)


def assigned(epoch: int, *, topic: TopicMetadata = TOPIC, unit: str = "") -> Assignment:
    name = f"{NAME}-partition-{unit[1:]}" if unit else NAME
    return Assignment(topic, unit, name, epoch, 1)


def released(epoch: int, *, new_epoch: int = 0, topic_id: str = "id-1") -> Release:
    broker_id = "broker-2" if new_epoch else ""
    return Release(topic_id, "", NAME, epoch, broker_id, new_epoch, "", "")


def holding_after(*payloads: Assignment | Release, now_ms: int = 0) -> Holding:
    holding = Holding()
    for payload in payloads:
        holding.apply(payload, now_ms)
    return holding


def test_a_higher_epoch_replaces_a_lower_one():
    assert holding_after(assigned(1), assigned(2)).assigned(NAME) == assigned(2)


def test_a_lower_epoch_never_replaces_a_higher_one():
    assert holding_after(assigned(2), assigned(1)).assigned(NAME) == assigned(2)


def test_a_release_drops_the_unit_and_says_where_it_went():
    holding = holding_after(assigned(1), released(1, new_epoch=2))

    assert holding.assigned(NAME) is None
    assert holding.released(NAME, 0) == released(1, new_epoch=2)


def test_a_release_of_an_older_epoch_is_ignored():
    holding = holding_after(assigned(3), released(2, new_epoch=3))

    assert holding.assigned(NAME) == assigned(3)
    assert holding.released(NAME, 0) is None


def test_a_unit_that_was_released_does_not_come_back_with_an_epoch_that_ended():
    assert holding_after(released(2, new_epoch=3), assigned(2)).assigned(NAME) is None


def test_a_unit_that_comes_back_with_a_newer_epoch_is_served_and_its_tombstone_is_gone():
    holding = holding_after(assigned(1), released(1, new_epoch=2), assigned(3))

    assert holding.assigned(NAME) == assigned(3)
    assert (holding.released(NAME, 0), holding.tombstones) == (None, 0)


def test_a_tombstone_lasts_its_time_and_no_longer():
    holding = holding_after(released(1, new_epoch=2), now_ms=1_000)
    end_ms = 1_000 + BROKER_TOMBSTONE_MS

    assert holding.released(NAME, end_ms - 1) is not None
    assert holding.released(NAME, end_ms) is None
    holding.expire(end_ms)
    assert holding.tombstones == 0


def test_the_oldest_tombstone_makes_room_for_a_newer_one():
    holding = Holding(tombstones_max=2)
    for number in range(3):
        name = f"{NAME}-{number}"
        holding.apply(replace(released(1), topic_id=f"id-{number}", name=name), 0)

    assert holding.tombstones == 2
    assert holding.released(f"{NAME}-0", 0) is None
    assert holding.released(f"{NAME}-2", 0) is not None


def test_partitions_of_one_topic_are_held_by_themselves():
    holding = holding_after(assigned(1, unit="p0"), assigned(4, unit="p1"))

    assert holding.assigned(f"{NAME}-partition-0") == assigned(1, unit="p0")
    assert holding.assigned(f"{NAME}-partition-1") == assigned(4, unit="p1")


def test_releasing_a_deleted_topic_leaves_its_successor_of_the_same_name():
    successor = assigned(1, topic=replace(TOPIC, topic_id="id-2"))

    holding = holding_after(assigned(1), successor, released(1))

    assert holding.assigned(NAME) == successor


def test_metadata_is_complete_only_with_tenant_and_namespace():
    holding = holding_after(assigned(1))
    holding.apply(TenantMetadata("t-1", "acme", {}, 1), 0)
    before = holding.has_metadata(assigned(1))
    holding.apply(NamespaceMetadata("n-1", "acme/orders", {}, 1), 0)

    assert (before, holding.has_metadata(assigned(1))) == (False, True)


steps = st.lists(
    st.one_of(
        st.builds(assigned, st.integers(1, 6)),
        st.builds(released, st.integers(1, 6), new_epoch=st.integers(0, 7)),
    ),
    max_size=15,
)


@given(steps)
def test_the_epoch_held_never_falls_and_nothing_is_both_held_and_released(history):
    holding = Holding()
    highest = 0
    for step in history:
        holding.apply(step, 0)

        held, tombstone = holding.assigned(NAME), holding.released(NAME, 0)
        assert held is None or tombstone is None
        known = held.epoch if held else tombstone.epoch_known if tombstone else 0
        assert known >= highest
        highest = known


@given(steps)
def test_applying_the_last_step_again_changes_nothing(history):
    once, twice = holding_after(*history), holding_after(*history, *history[-1:])

    assert once.assigned(NAME) == twice.assigned(NAME)
    assert once.released(NAME, 0) == twice.released(NAME, 0)
