"""Whatever is lost, doubled and late between two shards, no slot has two owners, and none is lost.

The network is the test's: each request is sent once its sender's log allows it, and may arrive any
number of times, at any time behind that, also when its move has long been over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected
from shards.domain import shard
from shards.domain.shard import AdoptSlots, Shard, SlotsAdopted
from shards.domain.slot_moves import decider
from shards.domain.slot_moves.decider import (
    AdoptCame,
    BeginIncoming,
    CopyRows,
    ReclaimSlots,
    RefuseSlots,
    ReleaseSlots,
    RemoveRows,
)
from shards.domain.slots.events import (
    SCAN_DONE,
    CountedUnits,
    SlotRanges,
    SlotRowsCopied,
    SlotRowsRemoved,
    SlotsIncoming,
    SlotsReclaimed,
    SlotsRefused,
    SlotsReleased,
    overlap,
    united,
    without,
)
from shards.projections.move_fields import pack_moves, unpack_moves

ALL: SlotRanges = ((0, 99),)
PIECES: tuple[SlotRanges, ...] = (((0, 9),), ((10, 29), (50, 59)), ((40, 44),), ((90, 99),))
ONCE = (BeginIncoming, ReleaseSlots, AdoptCame, RefuseSlots, ReclaimSlots)
"""Commands that change nothing when they come again."""


@dataclass
class Log:
    """One shard: its record, and the events of its log."""

    state: Shard
    events: list[Any] = field(default_factory=list)

    def carry_out(self, command: Any) -> None:
        decision = decider.decide(self.state, command)
        assert isinstance(decision, Accepted | Rejected)
        if isinstance(decision, Rejected):
            return
        for event in decision.events:
            after = shard.evolve(self.state, event)
            assert after is not None
            self.state = after
            self.events.append(event)
        if isinstance(command, ONCE):
            assert decider.decide(self.state, command) == Accepted(()), "a repetition is one"
        ranges = self.state.ranges
        fields = unpack_moves(pack_moves(self.state))
        stored = Shard(ranges, self.state.shard_map_version, **fields)
        assert stored.settled_move_id == self.state.settled_move_id
        assert (stored.incoming, stored.outgoing) == (self.state.incoming, self.state.outgoing)
        assert stored.came == self.state.came

    def has(self, of_type: type, move_id: int) -> bool:
        return any(type(each) is of_type and each.move_id == move_id for each in self.events)


@dataclass
class Move:
    """A move by the cluster manager's plan."""

    move_id: int
    ranges: SlotRanges
    source: Log
    target: Log

    def request(self, what: int) -> tuple[Log, Any] | None:
        """Return who is sent what, None while its sender has no reason to."""
        a, b, number = self.source, self.target, self.move_id
        units = (CountedUnits("s-1", 3),)
        match what:
            case 0:
                return b, BeginIncoming(number, self.ranges, 1, 10)
            case 1:
                return b, CopyRows(number, (), SCAN_DONE, "", 20)
            case 2 if b.has(SlotRowsCopied, number):
                return a, ReleaseSlots(number, self.ranges, 2, units, units, 5)
            case 3 if a.has(SlotsReleased, number):
                return b, AdoptCame(number, (), 30, number + 1, units, units, 5)
            case 4:
                return b, RefuseSlots(number, "stopped")
            case 5 if b.has(SlotsRefused, number):
                return a, ReclaimSlots(number)
            case 6 if b.has(SlotsAdopted, number) or a.has(SlotsReclaimed, number):
                return a, RemoveRows(number, (), is_last=True)
            case 7 if b.has(SlotsRefused, number):
                return b, RemoveRows(number, (), is_last=True)
            case _:
                return None

    @property
    def is_over(self) -> bool:
        """What the cluster manager knows before it begins another move of these shards."""
        a, b, number = self.source, self.target, self.move_id
        is_done = b.has(SlotsAdopted, number) and a.has(SlotRowsRemoved, number)
        is_clean = b.has(SlotRowsRemoved, number) or not b.has(SlotsIncoming, number)
        return is_done or (a.has(SlotsReclaimed, number) and is_clean)


def check_owners(one: Log, other: Log, moves: list[Move]) -> None:
    """Check that each slot has one owner, or none while a move has released it."""
    owned, owned_there = one.state.ranges, other.state.ranges
    assert not overlap(owned, owned_there), "a slot has two owners"
    nobodys = without(ALL, united(owned, owned_there))
    released: SlotRanges = ()
    for move in moves:
        number = move.move_id
        ends = [move.target.has(of_type, number) for of_type in (SlotsAdopted, SlotsRefused)]
        assert ends.count(True) <= 1, "a move has two ends"
        is_back = move.source.has(SlotsReclaimed, number)
        if move.source.has(SlotsReleased, number) and not ends[0] and not is_back:
            released = move.ranges
    assert nobodys == released


STEPS = st.tuples(
    # Refusals are rare, so that moves get far.
    st.sampled_from([0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7]),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    st.integers(0, 3),
    st.booleans(),
)


@given(st.lists(STEPS, min_size=30, max_size=80))
@settings(max_examples=150, deadline=None)
def test_no_slot_has_two_owners_whatever_the_network_does(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    logs = [Log(_founded(((0, 49),))), Log(_founded(((50, 99),)))]
    moves: list[Move] = []
    for what, age, piece, is_from_second in steps:
        if not moves or moves[-1].is_over:
            source, target = logs[is_from_second], logs[not is_from_second]
            others = without(ALL, PIECES[piece])
            ranges = without(source.state.ranges, others)
            if not ranges:
                continue
            moves.append(Move(len(moves) + 1, ranges, source, target))
        late = moves[max(0, len(moves) - 1 - age)]
        request = late.request(what)
        if request is not None:
            receiver, command = request
            receiver.carry_out(command)
        check_owners(logs[0], logs[1], moves)


def _founded(ranges: SlotRanges) -> Shard:
    decision = shard.decide(None, AdoptSlots(ranges, 1))
    assert isinstance(decision, Accepted)
    founded = shard.evolve(None, decision.events[0])
    assert founded is not None
    return founded
