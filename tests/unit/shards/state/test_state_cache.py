"""What a leader has in memory: pending states stay, others may go."""

from nextgen.kernel.limits.write import NODE_STATES_CACHED_MAX, SHARD_STATES_CACHED_MAX
from shards.domain.states import StateKind
from shards.state.state_cache import UNREAD, StateCache, StateRoom

USAGE = StateKind.USAGE


def test_what_was_remembered_is_found_and_the_rest_is_missing():
    cache = StateCache()
    cache.remember(USAGE, {"a": 1, "b": None})

    assert cache.find(USAGE, ["a", "b", "c"]) == ({"a": 1, "b": None}, ["c"])
    assert cache.find(StateKind.TOTAL, ["a"]) == ({}, ["a"])


def test_one_state_is_found_as_many_are():
    cache = StateCache()
    cache.remember(USAGE, {"a": 1, "b": None})
    cache.change(1, {USAGE: {"a": None}})

    assert [cache.get(USAGE, key) for key in ("a", "b", "c")] == [None, None, UNREAD]


def test_node_states_cached_max_are_shared_by_the_leaders_of_a_node():
    room = StateRoom()
    room.enter("first")
    cache = StateCache(room.part)
    assert room.part() == SHARD_STATES_CACHED_MAX
    cache.remember(USAGE, {str(number): number for number in range(SHARD_STATES_CACHED_MAX)})

    for number in range(63):
        room.enter(number)
    assert room.part() == NODE_STATES_CACHED_MAX // 64
    cache.remember(USAGE, {"one": 1})

    found, _ = cache.find(USAGE, [str(number) for number in range(SHARD_STATES_CACHED_MAX)])
    assert len(found) + 1 == NODE_STATES_CACHED_MAX // 64, "with one more the oldest are dropped"
    for number in range(63):
        room.leave(number)
    assert room.part() == SHARD_STATES_CACHED_MAX


def test_a_pending_state_hides_what_was_read():
    cache = StateCache()
    cache.remember(USAGE, {"a": 1})
    cache.change(1, {USAGE: {"a": 2}})

    assert cache.find(USAGE, ["a"]) == ({"a": 2}, [])
    assert list(cache.pending(USAGE)) == [("a", 2)]


def test_a_settled_state_stays_known_but_is_not_pending():
    cache = StateCache()
    touched = cache.change(1, {USAGE: {"a": 2}})

    cache.settle(1, touched)

    assert cache.find(USAGE, ["a"]) == ({"a": 2}, [])
    assert list(cache.pending(USAGE)) == []


def test_a_state_changed_again_stays_pending_when_the_first_change_settles():
    cache = StateCache()
    first = cache.change(1, {USAGE: {"a": 1}})
    second = cache.change(2, {USAGE: {"a": 2}})

    cache.settle(1, first)
    assert list(cache.pending(USAGE)) == [("a", 2)]
    cache.settle(2, second)
    assert list(cache.pending(USAGE)) == []


def test_shard_states_cached_max_are_kept_and_one_more_drops_the_oldest():
    cache = StateCache(cached_max=lambda: 2)

    cache.remember(USAGE, {"a": 1, "b": 2, "c": 3})

    assert cache.find(USAGE, ["a", "b", "c"]) == ({"b": 2, "c": 3}, ["a"])


def test_pending_states_are_kept_however_many_there_are():
    cache = StateCache(cached_max=lambda: 1)
    touched = cache.change(1, {USAGE: {"a": 1, "b": 2}})
    assert cache.find(USAGE, ["a", "b"])[1] == []

    cache.settle(1, touched)

    assert cache.find(USAGE, ["a", "b"]) == ({"b": 2}, ["a"])
