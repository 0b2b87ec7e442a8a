"""What a broker holds, and which epochs may replace which."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.former_names import OldName
from brokers.domain.holding import (
    Assignment,
    Holding,
    MetadataKind,
    MetadataRemoved,
    Moving,
    MovingNotes,
    NamespaceMetadata,
    Prepare,
    Release,
    TenantMetadata,
    TopicMetadata,
)
from nextgen.kernel.limits.cluster import BROKER_TOMBSTONE_MS
from nextgen.kernel.limits.placement import PREPARED_MS_MAX, PREPARED_UNITS_MAX
from nextgen.kernel.routing.names import parse_topic

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


@pytest.mark.parametrize("earlier", [released(3), released(2, new_epoch=3), released(9)])
def test_a_unit_that_was_released_before_its_topic_was_deleted_is_released_again(
    earlier: Release,
):
    """Its messages are to be removed, by this broker if its last owner is gone."""
    holding = holding_after(assigned(2), earlier)
    deletion = replace(released(3), is_deleted=True)

    assert holding.apply(deletion, 0)
    assert not holding.apply(deletion, 0), "a repetition changes nothing"
    assert not holding.apply(assigned(earlier.epoch_known), 0), "what was fenced stays fenced"


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


def test_broker_tombstones_max_are_remembered_and_one_more_drops_the_oldest():
    holding = Holding(tombstones_max=2)
    for number in range(3):
        name = f"{NAME}-{number}"
        holding.apply(replace(released(1), topic_id=f"id-{number}", name=name), 0)

        assert holding.tombstones == min(number + 1, 2)
    assert holding.released(f"{NAME}-0", 0) is None
    assert holding.released(f"{NAME}-1", 0) is not None
    assert holding.released(f"{NAME}-2", 0) is not None


def test_partitions_of_one_topic_are_held_by_themselves():
    holding = holding_after(assigned(1, unit="p0"), assigned(4, unit="p1"))

    assert holding.assigned(f"{NAME}-partition-0") == assigned(1, unit="p0")
    assert holding.assigned(f"{NAME}-partition-1") == assigned(4, unit="p1")


def test_releasing_a_deleted_topic_leaves_its_successor_of_the_same_name():
    successor = assigned(1, topic=replace(TOPIC, topic_id="id-2"))

    holding = holding_after(assigned(1), successor, released(1))

    assert holding.assigned(NAME) == successor


NEW_NAME = "persistent://acme/sales/settled"
RENAMED = replace(TOPIC, name=NEW_NAME, version=4, former_names=(OldName(NAME, 1_000),))


def renamed(epoch: int, *, unit: str = "") -> Assignment:
    name = f"{NEW_NAME}-partition-{unit[1:]}" if unit else NEW_NAME
    return Assignment(RENAMED, unit, name, epoch, 1)


def held(holding: Holding, name: str, unix_ms: int = 0) -> Assignment | None:
    return holding.held(parse_topic(name), unix_ms)


def test_a_unit_is_held_by_a_former_name_until_its_time_is_over():
    holding = holding_after(renamed(2))

    assert held(holding, NEW_NAME, 5_000) == renamed(2)
    assert [held(holding, NAME, now) for now in (999, 1_000)] == [renamed(2), None]
    assert holding.assigned(NAME) is None


def test_partitions_are_held_by_the_former_name_of_their_topic():
    holding = holding_after(renamed(2, unit="p1"))

    assert held(holding, f"{NAME}-partition-1") == renamed(2, unit="p1")
    assert held(holding, f"{NAME}-partition-2") is None
    assert held(holding, NAME) is None


def test_a_former_name_that_is_another_topics_name_is_that_topics():
    other = assigned(1, topic=replace(TOPIC, topic_id="id-2"))

    assert held(holding_after(renamed(2), other), NAME) == other


def test_a_topic_that_was_renamed_before_its_release_came_has_one_name():
    holding = holding_after(assigned(1), renamed(2))

    assert (holding.assigned(NAME), holding.assigned(NEW_NAME)) == (None, renamed(2))
    assert (holding.topic(NAME), holding.topic(NEW_NAME)) == (None, RENAMED)
    holding.apply(released(2), 0)
    assert (held(holding, NAME), holding.topic(NEW_NAME), len(holding.assignments)) == (
        None,
        None,
        0,
    )


def test_a_rename_that_the_topics_metadata_brings_does_not_change_what_is_served():
    holding = holding_after(assigned(1))

    holding.apply(RENAMED, 0)

    assert (holding.assigned(NAME), holding.assigned(NEW_NAME)) == (assigned(1), None)
    assert (holding.topic(NAME), holding.topic(NEW_NAME)) == (None, RENAMED)


def test_an_earlier_version_of_a_topic_does_not_take_its_new_name_away():
    holding = holding_after(renamed(2, unit="p0"), assigned(1, unit="p1"))

    assert (holding.topic(NAME), holding.topic(NEW_NAME)) == (None, RENAMED)
    assert held(holding, f"{NAME}-partition-0") == renamed(2, unit="p0")


def test_a_deleted_or_released_topic_leaves_its_former_names():
    deleted = holding_after(renamed(2))
    deleted.apply(MetadataRemoved(MetadataKind.TOPIC, NEW_NAME, "id-1"), 0)

    assert held(deleted, NAME) is None
    assert held(holding_after(renamed(2), released(2)), NAME) is None


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


# Metadata -------------------------------------------------------------------------------------


def topic_version(version: int, topic_id: str = "id-1") -> TopicMetadata:
    return TopicMetadata(topic_id, NAME, 0, {"version": str(version)}, version)


def test_only_a_higher_version_of_a_topic_replaces_what_is_held():
    holding = holding_after(assigned(1))

    for version in (5, 4, 5):
        holding.apply(topic_version(version), 0)

    assert holding.topics["id-1"] == topic_version(5)
    assert holding.topic(NAME) == topic_version(5)


def test_an_assignment_with_an_older_topic_leaves_the_newer_one():
    holding = holding_after(assigned(1))
    holding.apply(topic_version(9), 0)

    holding.apply(assigned(2, unit="p1"), 0)

    assert holding.topics["id-1"] == topic_version(9)


def test_a_topic_of_which_nothing_is_held_is_not_learned():
    holding = Holding()

    holding.apply(topic_version(5), 0)

    assert holding.topics == {}


def test_a_topic_is_forgotten_with_the_last_of_its_units():
    holding = holding_after(assigned(1), assigned(1, unit="p1"))

    holding.apply(released(1), 0)
    assert holding.topic(NAME) == TOPIC
    assert holding.units("id-1") == {"p1": 1}
    name = f"{NAME}-partition-1"
    holding.apply(Release("id-1", "p1", name, 1, "", 0, "", ""), 0)

    assert (holding.topic(NAME), holding.topics, holding.units("id-1")) == (None, {}, {})


def test_a_topic_that_was_deleted_is_forgotten_and_its_unit_stays_until_it_is_released():
    holding = holding_after(assigned(1))

    holding.apply(MetadataRemoved(MetadataKind.TOPIC, NAME, "id-1"), 0)

    assert holding.topic(NAME) is None
    assert holding.assigned(NAME) == assigned(1)


def test_a_topic_that_has_the_name_of_a_deleted_one_is_another():
    holding = holding_after(assigned(1), assigned(1, topic=topic_version(1, "id-2")))

    holding.apply(MetadataRemoved(MetadataKind.TOPIC, NAME, "id-1"), 0)
    holding.apply(released(1), 0)

    assert holding.topic(NAME) == topic_version(1, "id-2")


@pytest.mark.parametrize("kind", [TenantMetadata, NamespaceMetadata])
def test_only_a_higher_version_of_a_parent_replaces_and_another_id_always(kind):
    holding = Holding()
    held = holding.tenants if kind is TenantMetadata else holding.namespaces

    for version in (2, 3, 1):
        holding.apply(kind("id-1", "acme", {}, version), 0)
    assert held["acme"] == kind("id-1", "acme", {}, 3)

    holding.apply(kind("id-2", "acme", {}, 1), 0)
    assert held["acme"] == kind("id-2", "acme", {}, 1)


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (TenantMetadata("id-2", "acme", {}, 1), MetadataKind.TENANT),
        (NamespaceMetadata("id-2", "acme", {}, 1), MetadataKind.NAMESPACE),
    ],
)
def test_a_removal_takes_the_object_that_it_names_and_no_successor(metadata, kind):
    holding = Holding()
    holding.apply(metadata, 0)

    holding.apply(MetadataRemoved(kind, "acme", "id-1"), 0)
    assert [*holding.tenants, *holding.namespaces] == ["acme"]
    holding.apply(MetadataRemoved(kind, "acme", "id-2"), 0)

    assert [*holding.tenants, *holding.namespaces] == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=40))
def test_topics_are_held_exactly_while_a_unit_of_them_is(steps):
    """1. Units come and go in any order, with any epoch. 2. Topics and names follow from them."""
    holding = Holding()
    for unit, epoch, is_release in steps:
        text = f"p{unit}"
        if is_release:
            holding.apply(
                Release("id-1", text, f"{NAME}-partition-{unit}", epoch, "", 0, "", ""), 0
            )
        else:
            holding.apply(assigned(epoch, unit=text), 0)

        units = {key[1]: each.epoch for key, each in holding.assignments.items()}
        assert dict(holding.units("id-1")) == units
        assert holding.topic(NAME) == (TOPIC if units else None)


# What is on its way --------------------------------------------------------------------------


def going_to(epoch: int, url: str = "pulsar://b:1") -> Release:
    return Release("id-1", "", NAME, epoch, "broker-2", epoch + 1, "", url)


def test_what_may_come_is_not_held():
    holding = Holding()

    assert holding.apply(Prepare(assigned(2)), 0)

    assert holding.assigned(NAME) is None
    assert holding.topics == {}


def test_what_is_about_to_go_is_held_and_it_is_known_where_to():
    holding = holding_after(assigned(1))

    assert not holding.apply(Moving(going_to(1)), 0)

    assert holding.assigned(NAME) == assigned(1)
    assert holding.going_to(assigned(1).key, 1) == "pulsar://b:1"
    assert holding.going_to(assigned(1).key, 2) == ""


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_word_about_another_epoch_is_not_kept(epoch: int):
    holding = holding_after(assigned(2))

    holding.apply(Moving(going_to(epoch)), 0)

    assert holding.going_to(assigned(2).key, 2) == ""


def test_what_has_gone_is_not_about_to_go():
    holding = holding_after(assigned(1))
    holding.apply(Moving(going_to(1)), 0)

    holding.apply(released(1, new_epoch=2), 0)

    assert holding.going_to(assigned(1).key, 1) == ""


def test_a_move_that_does_not_come_is_forgotten_in_time():
    holding = holding_after(assigned(1))
    holding.apply(Moving(going_to(1)), 0)

    holding.expire(PREPARED_MS_MAX - 1)
    assert holding.going_to(assigned(1).key, 1)
    holding.expire(PREPARED_MS_MAX)

    assert holding.going_to(assigned(1).key, 1) == ""


def test_so_many_are_kept_in_mind_and_the_oldest_goes():
    notes = MovingNotes()
    release = going_to(1)
    for number in range(PREPARED_UNITS_MAX):
        notes.note(replace(release, topic_id=f"id-{number}"), 0)
    assert notes.get(("id-0", "")) is not None

    notes.note(replace(release, topic_id="more"), 0)

    assert len(notes) == PREPARED_UNITS_MAX
    assert notes.get(("id-0", "")) is None
    assert notes.get(("more", "")) is not None
