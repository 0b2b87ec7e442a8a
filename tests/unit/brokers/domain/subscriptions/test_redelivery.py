from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.position import Position
from brokers.domain.subscriptions.redelivery import RedeliveryCounts, ReplayQueue
from nextgen.kernel.limits.pulsar import REDELIVERY_COUNTS_MAX


class Counted(Position):
    """Counts how often positions are compared to be put in order."""

    comparisons = 0

    def __lt__(self, other: tuple[int, ...]) -> bool:
        Counted.comparisons += 1
        return tuple.__lt__(self, other)


positions = st.builds(Position, st.integers(1, 2), st.integers(0, 60))
steps = st.lists(st.tuples(st.sampled_from(("add", "discard", "look")), st.lists(positions)))


@given(st.booleans(), steps)
def test_a_replay_queue_is_a_set_in_order(
    is_long: bool, taken: list[tuple[str, list[Position]]]
) -> None:
    queue, model = ReplayQueue(), set[Position]()
    if is_long:
        model |= {Position(1, entry) for entry in range(0, 200, 2)}
        queue.add(model)
    for step, given_positions in taken:
        if step == "add":
            queue.add(given_positions)
            model |= set(given_positions)
        for position in given_positions:
            if step == "discard":
                queue.discard(position)
                model.discard(position)
        assert list(queue.ascending()) == sorted(model)
        assert all(position in queue for position in model)
        assert len(queue) == len(model)

    queue.clear()
    assert not list(queue.ascending())


def test_what_comes_up_may_be_discarded_meanwhile() -> None:
    queue = ReplayQueue()
    queue.add(Position(1, entry) for entry in range(500))

    for position in queue.ascending():
        queue.discard(position)
        queue.discard(Position(1, position.entry_id + 1))

    assert len(queue) == 0


def test_adding_one_position_does_not_go_through_all_others() -> None:
    """A consumer left 50,000 entries behind, and others give theirs back one by one."""
    queue = ReplayQueue()
    queue.add(Counted(1, entry) for entry in range(0, 100_000, 2))
    Counted.comparisons = 0

    for entry in range(1, 200, 2):
        queue.add((Counted(1, entry),))

    assert len(queue) == 50_100
    assert list(queue.ascending())[:201] == [Position(1, entry) for entry in range(201)]
    assert Counted.comparisons < 100 * 50


def test_a_run_ends_where_an_entry_or_a_ledger_does() -> None:
    queue = ReplayQueue()
    queue.add([Position(1, 3), Position(1, 4), Position(1, 5), Position(1, 7), Position(2, 0)])

    assert queue.run_length(Position(1, 3), 100) == 3
    assert queue.run_length(Position(1, 3), 2) == 2
    assert queue.run_length(Position(1, 7), 100) == 1
    assert Position(1, 7) in queue


def test_redeliveries_are_counted_until_they_are_forgotten() -> None:
    counts = RedeliveryCounts()
    counts.increment([Position(1, 1), Position(1, 2)])
    counts.increment([Position(1, 2)])
    counts.forget(Position(1, 1))
    counts.forget(Position(1, 9))

    assert [counts.of(Position(1, entry)) for entry in (1, 2)] == [0, 2]


def test_counts_beyond_the_limit_push_out_the_oldest() -> None:
    counts = RedeliveryCounts()
    everything = [Position(1, entry) for entry in range(REDELIVERY_COUNTS_MAX)]
    counts.increment(everything)
    counts.increment(everything[:1])
    assert len(counts) == REDELIVERY_COUNTS_MAX

    counts.increment([Position(2, 0)])

    assert len(counts) == REDELIVERY_COUNTS_MAX
    assert [counts.of(each) for each in (everything[0], everything[1], Position(2, 0))] == [2, 0, 1]
