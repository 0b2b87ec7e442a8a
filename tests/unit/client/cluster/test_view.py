"""The view only ever learns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.cluster.view import ClusterView
from nextgen.kernel.limits import cluster as limits
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.stream import MOVED_NAMES_MAX
from nextgen.kernel.routing.hashing import slot_of
from protos.nextgen.v1.cluster_service_pb2 import BrokerLoad, ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import LoadReport, SlotMoveChanged
from tests.support.discovery.fake_cluster import broker, full_update, shard_map


def leader(shard_id: int, term: int, endpoint: str) -> ClusterUpdate:
    return ClusterUpdate(leaders=[LeaderReport(shard_id=shard_id, term=term, grpc=endpoint)])


def test_a_full_update_says_where_every_key_is_led():
    view = ClusterView()
    assert view.shard_for_key("t/n/x") is None

    view.apply(full_update({1: "a:1", 2: "b:1"}))

    shard_id = view.shard_for_key("t/n/x")
    assert shard_id in view.shard_ids == [1, 2]
    assert view.leader_endpoint(1) == "a:1"
    assert view.replica_endpoints(2) == ["b:1"]
    assert view.shard_map_version == 1


def test_a_full_update_of_what_is_known_makes_an_equal_view():
    view, copy = ClusterView(), ClusterView()
    view.apply(full_update({1: "a:1", 2: "b:1"}))
    view.apply(ClusterUpdate(brokers=[broker("broker-1", "s-1")], manager_endpoints=["m:1"]))

    copy.apply(view.to_update())

    assert copy.to_update() == view.to_update()


def test_a_shard_has_led_by_the_map_or_by_a_leader_that_is_known():
    view = ClusterView()
    assert not view.has_led(1)

    view.apply(full_update({1: "a:1"}))
    assert view.has_led(1)

    later = shard_map({1: ["a"], 2: ["b"], 3: ["c"]}, version=3)
    later.shards[1].has_led = True
    view.apply(ClusterUpdate(shard_map=later))
    assert [view.has_led(each) for each in (1, 2, 3)] == [True, True, False]

    earlier_release = shard_map({1: ["a"], 2: ["b"], 3: ["c"]}, version=4)
    view.apply(ClusterUpdate(shard_map=earlier_release))
    assert view.has_led(3)


@given(reports=st.permutations([(1, "a:1"), (2, "b:1"), (5, "c:1"), (3, "d:1")]))
def test_the_leader_of_the_highest_term_wins_in_whatever_order(reports):
    view = ClusterView()
    for term, endpoint in reports:
        view.apply(leader(1, term, endpoint))

    assert (view.leader_term(1), view.leader_endpoint(1)) == (5, "c:1")


def test_an_older_map_changes_nothing_even_in_a_full_update():
    view = ClusterView()
    view.apply(ClusterUpdate(full=True, shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))

    view.apply(ClusterUpdate(full=True, shard_map=shard_map({1: ["a"]}, version=2)))

    assert view.shard_map_version == 3
    assert view.shard_ids == [1, 2]


@given(
    order=st.permutations(
        [
            broker("b", "s-1", epoch=1),
            broker("b", "s-1", epoch=1, is_live=False),
            broker("b", "s-2", epoch=2),
            broker("b", "s-2", epoch=2, is_live=False),
            broker("b", "s-3", epoch=3),
        ]
    )
)
def test_a_session_that_ended_stays_ended_in_whatever_order_it_is_learnt(order):
    view = ClusterView()
    for record in order:
        view.apply(ClusterUpdate(brokers=[record]))

    assert view.brokers["b"] == broker("b", "s-3", epoch=3)
    assert view.has_session_ended("b", "s-1")
    assert view.has_session_ended("b", "s-2")
    assert not view.has_session_ended("b", "s-3")


def test_a_session_nobody_recorded_is_not_ended():
    view = ClusterView()
    view.apply(ClusterUpdate(brokers=[broker("b", "s-1")]))

    assert not view.has_session_ended("b", "s-2")
    assert not view.has_session_ended("c", "s-9")


@pytest.mark.parametrize("more", [0, 1])
def test_ended_sessions_are_remembered_up_to_the_limit(more, monkeypatch):
    view = ClusterView()
    for epoch in range(1, limits.ENDED_SESSIONS_MAX + more + 1):
        record = broker("b", f"s-{epoch}", epoch=epoch, is_live=False)
        view.apply(ClusterUpdate(brokers=[record]))

    assert view.has_session_ended("b", "s-1") is (more == 0)
    assert view.has_session_ended("b", "s-2")


def test_within_an_epoch_the_higher_revision_wins_in_whatever_order_it_comes():
    begun, drained = broker("b", "s-1"), broker("b", "s-1")
    drained.draining, drained.revision = True, 1
    for order in ((begun, drained), (drained, begun)):
        view = ClusterView()
        for record in order:
            view.apply(ClusterUpdate(brokers=[record]))

        assert view.brokers["b"] == drained

    ended = broker("b", "s-1", is_live=False)
    view.apply(ClusterUpdate(brokers=[ended]))
    assert view.has_session_ended("b", "s-1")


def load(session_id, at_ms):
    report = LoadReport(topics=at_ms, measured_at_ms=at_ms)
    return ClusterUpdate(loads=[BrokerLoad(broker_id="b", session_id=session_id, load=report)])


def test_of_the_loads_of_a_session_the_later_one_stays():
    view = ClusterView()
    view.apply(ClusterUpdate(brokers=[broker("b", "s-1")]))
    for at_ms in (2, 1, 3, 2):
        view.apply(load("s-1", at_ms))

    assert view.load("s-1").topics == 3


def test_a_load_is_known_of_live_sessions_only():
    view = ClusterView()
    view.apply(load("s-1", 1))
    assert view.load("s-1") is None

    view.apply(ClusterUpdate(brokers=[broker("b", "s-1")]))
    view.apply(load("s-1", 1))
    view.apply(load("s-0", 1))
    assert view.load("s-1") is not None
    assert view.load("s-0") is None

    view.apply(ClusterUpdate(brokers=[broker("b", "s-2", epoch=2)]))
    assert view.load("s-1") is None
    assert not view.to_update().loads


def test_slots_that_moved_are_elsewhere_until_a_later_map_decides():
    view = ClusterView()
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))
    table = view.slot_table
    first, last = table.ranges_of(1)[0]

    assert view.learn_move([(first, last)], 2, 3)

    moved = [slot for slot in range(len(table.owners)) if view.slot_table.owners[slot] == 2]
    assert moved == sorted([*table.slots_of(2), *range(first, last + 1)])
    assert view.shard_map_version == 3
    assert not view.learn_move([(first, last)], 2, 3), "it is no news"
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))
    assert view.slot_table.owners[first] == 2
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=4)))
    assert view.slot_table.owners == table.owners


def test_a_move_that_an_older_map_heard_of_or_to_an_unknown_shard_changes_nothing():
    view = ClusterView()
    assert not view.learn_move([(0, 5)], 1, 0), "there is no map"
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))
    before = view.slot_table

    assert not view.learn_move([(0, 16_383)], 2, 2)
    assert not view.learn_move([(0, 16_383)], 3, 3)

    assert view.slot_table == before


def test_what_was_learned_of_moves_can_be_forgotten():
    view = ClusterView()
    view.forget_moves()
    assert view.slot_table is None
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))
    before = view.slot_table
    assert view.learn_move([(0, 16_383)], 2, 3)

    view.forget_moves()

    assert view.slot_table is before is view.map_table
    assert view.learn_move([(0, 16_383)], 2, 3), "it may be said again"


def slot_move(move_id: int, phase: str) -> ClusterUpdate:
    return ClusterUpdate(slot_moves=[SlotMoveChanged(move_id=move_id, phase=phase)])


def test_moves_of_slots_only_go_forward_and_are_kept_until_they_are_over():
    view = ClusterView()
    for phase in ("planned", "stopping", "planned"):
        view.apply(slot_move(1, phase))
    view.apply(slot_move(2, "planned"))
    assert [(each.move_id, each.phase) for each in view.slot_moves.values()] == [
        (1, "stopping"),
        (2, "planned"),
    ]

    view.apply(slot_move(1, "adopted"))  # Before its target had heard of the stop.
    assert view.slot_moves[1].phase == "adopted"
    view.apply(slot_move(1, "done"))
    assert list(view.slot_moves) == [2]


def test_a_full_update_names_every_move_that_is_not_over():
    view = ClusterView()
    view.apply(slot_move(1, "adopted"))
    view.apply(slot_move(2, "planned"))

    stale = ClusterUpdate(full=True, slot_moves=[SlotMoveChanged(move_id=1, phase="planned")])
    view.apply(stale)

    assert {move_id: each.phase for move_id, each in view.slot_moves.items()} == {1: "adopted"}


def owner_of(view: ClusterView, key: str) -> int:
    return view.slot_table.owners[slot_of(key)]


def test_a_name_of_a_renamed_topic_is_found_by_the_slot_that_a_shard_named():
    view = ClusterView()
    view.apply(ClusterUpdate(shard_map=shard_map({1: ["a"], 2: ["b"]}, version=3)))
    key = "t/n/renamed"
    home = next(
        slot for slot in range(SLOT_COUNT) if view.slot_table.owners[slot] != owner_of(view, key)
    )

    view.learn_names({key: home})

    assert view.is_moved(key)
    assert view.slot_of_key(key) == home
    assert view.shard_for_key(key) == view.slot_table.owners[home]
    view.learn_names({key: slot_of(key)})
    assert not view.is_moved(key)
    assert view.slot_of_key(key) == slot_of(key)


def test_moved_names_max_names_are_remembered_and_the_oldest_is_forgotten():
    view = ClusterView()
    keys = [f"t/n/{number}" for number in range(MOVED_NAMES_MAX)]
    view.learn_names({key: (slot_of(key) + 1) % SLOT_COUNT for key in keys})
    view.learn_names({keys[0]: (slot_of(keys[0]) + 2) % SLOT_COUNT})

    view.learn_names({"t/n/more": (slot_of("t/n/more") + 1) % SLOT_COUNT})

    assert not view.is_moved(keys[1])
    assert all(map(view.is_moved, (keys[0], keys[2], "t/n/more")))
