"""The fair queue: what its bounds refuse, and how long one key may wait for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nextgen.kernel.input.fair_queue import FairQueue
from tests.support.costs.processor_time import processor_time

_PER_KEY_MAX = 3
_TOTAL_MAX = 7
_KEYS = st.sampled_from("abcd")


def _drain(queue: FairQueue[int]) -> list[tuple[str, int]]:
    taken = []
    while (each := queue.take()) is not None:
        taken.append(each)
    return taken


def test_keys_are_served_in_turn_and_each_in_its_order() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=10, total_max=10)
    for item in range(4):
        queue.put("noisy", item)
    queue.put("quiet", 10)
    queue.put("other", 20)
    queue.put("other", 21)

    taken = _drain(queue)

    assert taken == [
        ("noisy", 0),
        ("quiet", 10),
        ("other", 20),
        ("noisy", 1),
        ("other", 21),
        ("noisy", 2),
        ("noisy", 3),
    ]


def test_an_empty_queue_has_nothing_to_take_and_keeps_no_key() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=1, total_max=1)
    queue.put("tenant", 1)

    queue.take()

    assert queue.take() is None
    assert (len(queue), queue.keys_waiting, queue.waiting("tenant")) == (0, 0, 0)


def test_one_item_beyond_the_bound_of_its_key_is_refused_and_others_are_not() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=2, total_max=10)

    accepted = [queue.put("noisy", item) for item in range(3)]

    assert accepted == [True, True, False]
    assert queue.put("quiet", 0)
    assert _drain(queue) == [("noisy", 0), ("quiet", 0), ("noisy", 1)]


def test_one_item_beyond_the_total_is_refused_and_leaves_no_key_behind() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=2, total_max=2)
    queue.put("a", 0)
    queue.put("b", 0)

    assert not queue.put("c", 0)
    assert queue.keys_waiting == 2


def test_a_discarded_item_is_not_served_and_makes_room() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=2, total_max=2)
    queue.put("a", 0)
    queue.put("a", 1)

    assert queue.discard("a", 0)
    assert not queue.discard("a", 0)
    assert not queue.discard("b", 0)
    assert queue.put("a", 2)
    assert _drain(queue) == [("a", 1), ("a", 2)]


def test_bounds_without_room_for_one_item_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        FairQueue(per_key_max=0, total_max=1)


def test_repr_has_the_numbers_for_diagnostics() -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=2, total_max=2)
    queue.put("a", 0)

    assert repr(queue) == "<FairQueue items=1 keys=1>"


@given(backlog=st.integers(1, 200), others=st.integers(0, 20))
def test_a_first_item_waits_for_one_item_of_each_other_key(backlog: int, others: int) -> None:
    queue: FairQueue[int] = FairQueue(per_key_max=1_000, total_max=10_000)
    for item in range(backlog):
        queue.put("noisy", item)
        for other in range(others):
            queue.put(f"other-{other}", item)
    queue.put("quiet", 0)

    served = [key for key, _ in _drain(queue)]

    assert served.index("quiet") <= others + 1


def test_a_long_queue_costs_the_same_for_each_item_as_a_short_one() -> None:
    """Items that give up at the front must not make each later one dearer."""

    def cpu_seconds(items: int) -> float:
        queue: FairQueue[int] = FairQueue(per_key_max=items, total_max=items)
        with processor_time() as taken:
            for item in range(items):
                queue.put("a", item)
            for item in range(items // 2):
                queue.discard("a", item)
            _drain(queue)
        return taken.seconds

    short = min(cpu_seconds(2_000) for _ in range(3))

    long = min(cpu_seconds(32_000) for _ in range(3))

    # Sixteen times the items; quadratic would be 256 times the work.
    assert long < 64 * short


class FairQueueModel(RuleBasedStateMachine):
    """Against lists: one per key, and the order in which the keys have their turn."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue(_PER_KEY_MAX, _TOTAL_MAX)
        self.turns: list[str] = []
        self.items: dict[str, list[int]] = {}
        self.next_item = 0

    @rule(key=_KEYS)
    def put(self, key: str) -> None:
        self.next_item += 1
        waiting = self.items.get(key, [])
        has_room = len(waiting) < _PER_KEY_MAX and sum(map(len, self.items.values())) < _TOTAL_MAX

        assert self.queue.put(key, self.next_item) == has_room

        if has_room:
            if not waiting:
                self.turns.append(key)
            self.items.setdefault(key, []).append(self.next_item)

    @rule()
    def take(self) -> None:
        if not self.turns:
            assert self.queue.take() is None
            return
        key = self.turns.pop(0)
        item = self.items[key].pop(0)

        assert self.queue.take() == (key, item)

        if self.items[key]:
            self.turns.append(key)
        else:
            del self.items[key]

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.turns))
        item = data.draw(st.sampled_from(self.items[key]))

        assert self.queue.discard(key, item)
        assert not self.queue.discard(key, item)

        self.items[key].remove(item)
        if not self.items[key]:
            del self.items[key]
            self.turns.remove(key)

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.queue) == sum(map(len, self.items.values()))
        assert self.queue.keys_waiting == len(self.turns)
        assert {key: self.queue.waiting(key) for key in "abcd"} == {
            key: len(self.items.get(key, ())) for key in "abcd"
        }


TestFairQueueModel = FairQueueModel.TestCase
