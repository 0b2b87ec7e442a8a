"""Renamed topics in the fold of a log: by their names, and by their whole lives."""

from __future__ import annotations

from dataclasses import replace

from nextgen.harness.history.log_fold import index_log
from nextgen.harness.history.model import LogEvent
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import mint_id

A, B = "persistent://acme/orders/a", "persistent://acme/orders/b"
SLOT_A, SLOT_B = slot_of("acme/orders/a"), slot_of("acme/orders/b")
ID_A, ID_B = (mint_id(slot, bytes([slot % 256]) * 10) for slot in (SLOT_A, SLOT_B))

CREATED = LogEvent(1, 1, 1, "topic_created", A, ID_A, properties={"k": "v"})
SET = LogEvent(1, 2, 1, "policy_set", A, ID_A, policies="ttl 1", policies_version=1)
RENAMED = LogEvent(
    *(1, 3, 1, "topic_renamed", A, ID_A),
    properties={"k": "v"},
    policies="ttl 1",
    policies_version=1,
    facts={"new_name": B, "version": 3},
)
CHANGED = LogEvent(1, 4, 1, "topic_properties_set", B, ID_A, properties={"k": "w"})
POINTED = LogEvent(2, 1, 1, "topic_name_pointed", B, ID_A)
ANEW = LogEvent(1, 5, 1, "topic_created", A, replace(CREATED, id=f"{ID_A[:-1]}0").id)


def test_a_rename_ends_a_topic_under_one_name_and_begins_it_under_the_other() -> None:
    index = index_log([CREATED, SET, RENAMED, CHANGED, POINTED])

    before, after = index.keys[A], index.keys[B]
    states = [(each.id, each.version, each.properties) for each in after.states]
    assert [each.exists for each in before.states] == [True, True, False]
    assert states == [(ID_A, 3, (("k", "v"),)), (ID_A, 4, (("k", "w"),))]
    assert [(each.policies, each.policies_version) for each in after.states] == [("ttl 1", 1)] * 2
    assert after.at(2) is None


def test_the_whole_life_of_a_topic_has_a_rename_as_a_change() -> None:
    index = index_log([CREATED, SET, RENAMED, CHANGED, ANEW])

    life = index.life_of(B)
    assert life is not None
    assert life is index.life_of(A)
    assert [each.version for each in life.states] == [1, 2, 3, 4]
    assert [known.key for known in index.all_lives()] == [A]
    # The former name is another topic's by now, and that is listed.
    assert (index.keys[A].last or life.states[0]).id == ANEW.id


def test_a_name_may_be_of_topics_of_two_shards_in_turn() -> None:
    deleted = LogEvent(1, 5, 1, "topic_deleted", B, ID_A)
    freed = LogEvent(2, 2, 1, "topic_name_freed", B, ID_A)
    own = LogEvent(2, 3, 1, "topic_created", B, ID_B)

    known = index_log([CREATED, RENAMED, CHANGED, deleted, POINTED, freed, own]).keys[B]

    assert [state and state.id for state in (known.at(4, 1), known.at(2, 2))] == [ID_A, None]
    assert [state and state.id for state in (known.at(5, 1), known.at(3, 2))] == ["", ID_B]
    assert known.last is not None
    assert known.last.id == ID_B


def test_a_renamed_topic_goes_where_the_slot_in_its_id_goes() -> None:
    """Slot A leaves shard 1 behind the rename; that of the new name stays in shard 2."""
    facts = {"move": 1, "came": [[SLOT_A, SLOT_A]], "from_shard": 1, "from_position": 4}
    adopted = LogEvent(3, 1, 1, "slots_adopted", facts=facts)
    changed = replace(CHANGED, shard=3, position=2)

    index = index_log([CREATED, SET, RENAMED, POINTED, adopted, changed])

    assert [(each.event.shard, each.event.leg) for each in index.keys[B].states] == [(1, 1), (3, 2)]
    assert index.has_moved(B)
    assert index.has_moved(f"{B}-partition-1")
    order = index.order_at(B, 3, 2)
    assert order is not None
    assert [state and state.version for state in (index.keys[B].at(order, 3),)] == [4]
    assert index.by_shard[2][0].leg == 0
