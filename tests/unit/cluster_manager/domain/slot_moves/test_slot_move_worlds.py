"""Moves in random worlds: reports late and twice, leaders that die, stops at any time.

The world has the logs of the shards, which decide. After each step the cluster manager's map must
not be ahead of them, and nobody's units may appear or vanish.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from cluster_manager.domain.capacity_ledger import CapacityLeaseReleased
from cluster_manager.domain.cluster import (
    ClusterState,
    decide_begin_move,
    decide_move_report,
    decide_plan_slots,
    decide_stop_plan,
    fold_events,
)
from cluster_manager.domain.slot_moves.driver import next_moves
from cluster_manager.domain.slot_moves.moves import MovePhase, Report, SlotMove, TakeMoveReport
from cluster_manager.domain.slot_moves.plans import PlanKind, ended
from cluster_manager.domain.slot_moves.ranges import slots_of
from nextgen.kernel.events.decider import Rejected
from tests.unit.cluster_manager.domain.slot_moves.slot_worlds import (
    CONTEXT,
    cluster,
    leased,
    owners_of,
    wish,
)

STEPS = 400


@dataclass
class Ends:
    """What the two logs have of one move."""

    is_released: bool = False
    is_adopted: bool = False
    is_refused: bool = False
    is_reclaimed: bool = False
    is_cleaned: bool = False


@dataclass
class World:
    """The committed state, what is proposed on top of it, and the shards' logs.

    ``units`` are those that should be leased of each session."""

    random: random.Random
    committed: ClusterState = field(default_factory=cluster)
    proposed: list[tuple] = field(default_factory=list)
    owners: list[set[int]] = field(default_factory=list)
    ends: dict[int, Ends] = field(default_factory=dict)
    reports: list[TakeMoveReport] = field(default_factory=list)
    seen: list[SlotMove] = field(default_factory=list)
    units: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = leased(self.committed)
        self.owners = [{shard_id} for shard_id in owners_of(self.committed)]

    @property
    def pending(self) -> ClusterState:
        return fold_events(self.committed, [event for each in self.proposed for event in each])

    # What may happen -------------------------------------------------------------------------

    def plan(self) -> None:
        shard_ids = self.pending.shard_map.shard_ids
        kind = self.random.choice(list(PlanKind))
        command = wish(
            kind,
            shard_id=self.random.choice((0, *shard_ids)),
            into_shard=self.random.choice((0, *shard_ids)),
            ranges=((self.random.randrange(8_000), 8_000 + self.random.randrange(8_000)),),
            shards=1,
        )
        if len(shard_ids) < 6 or kind not in (PlanKind.ADD_SHARDS, PlanKind.SPLIT):
            self.propose(decide_plan_slots(self.pending, command, CONTEXT))

    def drive(self) -> None:
        state = self.pending
        plan = state.plans.present
        if plan is None:
            return
        led = set(state.shard_map.shard_ids)
        step = next_moves(plan, state.slot_moves, state.shard_map, led, dict.fromkeys(led, 10))
        if step.has_ended:
            self.proposed.append((ended(plan, 1),))
        for command in step.moves:
            decision = decide_begin_move(self.pending, command)
            assert not isinstance(decision, Rejected), decision
            self.propose(decision)

    def stop(self) -> None:
        self.propose(decide_stop_plan(self.pending, 0, "stopped"))

    def commit(self) -> None:
        if self.proposed:
            before = self.committed.shard_map.version
            events = self.proposed.pop(0)
            for event in events:
                if isinstance(event, CapacityLeaseReleased):
                    account = self.committed.ledger.accounts[event.broker_id]
                    self.units[event.session_id] -= account.leases[event.shard_id].units
            self.committed = fold_events(self.committed, events)
            assert self.committed.shard_map.version in (before, before + 1)
            self.seen.extend(self.committed.slot_moves.under_way)

    def lose_the_leader(self) -> None:
        """The next leader has what is committed; of what was proposed any beginning may be."""
        for _ in range(self.random.randint(0, len(self.proposed))):
            self.commit()
        self.proposed.clear()

    def deliver(self) -> None:
        """A report arrives: not in order, and maybe again later."""
        if self.reports:
            report = self.random.choice(self.reports)
            self.propose(decide_move_report(self.pending, report))

    def shards_act(self) -> None:
        """One shard of a move acts on what its leader may have heard, perhaps long ago."""
        if not self.seen:
            return
        move = self.random.choice(self.seen)
        ends = self.ends.setdefault(move.move_id, Ends())
        acts = [self._release, self._adopt, self._refuse, self._reclaim, self._clean]
        self.random.choice(acts)(move, ends)

    # Inside ----------------------------------------------------------------------------------

    def _release(self, move: SlotMove, ends: Ends) -> None:
        # The other shard asks for it as long as it has neither adopted nor refused.
        if not ends.is_released and not ends.is_refused:
            ends.is_released = True
            self._own(move, move.from_shard, False)

    def _adopt(self, move: SlotMove, ends: Ends) -> None:
        if ends.is_released and not ends.is_adopted and not ends.is_refused:
            ends.is_adopted = True
            self._own(move, move.to_shard, True)
            self._report(move, move.to_shard, Report.ADOPTED)

    def _refuse(self, move: SlotMove, ends: Ends) -> None:
        is_full = self.random.random() < 0.02
        if (move.phase is MovePhase.STOPPING or is_full) and not ends.is_adopted:
            ends.is_refused = True
            self._report(move, move.to_shard, Report.REFUSED)

    def _reclaim(self, move: SlotMove, ends: Ends) -> None:
        if move.phase is MovePhase.REFUSED and not ends.is_reclaimed:
            ends.is_reclaimed = True
            if ends.is_released:
                self._own(move, move.from_shard, True)
            self._report(move, move.from_shard, Report.RECLAIMED)

    def _clean(self, move: SlotMove, ends: Ends) -> None:
        if move.phase is MovePhase.ADOPTED:
            ends.is_cleaned = True
            self._report(move, move.from_shard, Report.CLEANED)

    def _own(self, move: SlotMove, shard_id: int, has: bool) -> None:
        for slot in slots_of(move.ranges):
            (self.owners[slot].add if has else self.owners[slot].remove)(shard_id)

    def _report(self, move: SlotMove, shard_id: int, report: Report) -> None:
        units = {"s-1": move.move_id % 4, "s-2": 1} if report is Report.ADOPTED else {}
        self.reports.append(
            TakeMoveReport(move.move_id, shard_id, report, 3, 4, session_units=units)
        )

    def propose(self, decision: object) -> None:
        if not isinstance(decision, Rejected) and decision.events:
            self.proposed.append(decision.events)

    # What must hold --------------------------------------------------------------------------

    def check(self) -> None:
        assert max(map(len, self.owners)) <= 1, "two shards decide about one slot"
        assert leased(self.committed) == self.units, "units appeared or vanished"
        for account in self.committed.ledger.accounts.values():
            assert all(lease.units >= 0 for lease in account.leases.values())
        busy = [shard for move in self.committed.slot_moves.under_way for shard in move.shards]
        assert len(busy) == len(set(busy)), "a shard takes part in two moves"
        moving = {
            slot for move in self.committed.slot_moves.under_way for slot in slots_of(move.ranges)
        }
        map_owners = owners_of(self.committed)
        alone = {shard_id: {shard_id} for shard_id in set(map_owners)}
        wrong = [
            slot
            for slot, (have, owner) in enumerate(zip(self.owners, map_owners, strict=True))
            if have != alone[owner] and slot not in moving
        ]
        assert not wrong, "the map is wrong of these slots"

    def settle(self) -> None:
        """Let everything that is under way come to its end, without further stops."""
        for _ in range(20_000):
            while self.proposed:
                self.commit()
            if self.pending.plans.present is None and not self.pending.slot_moves.under_way:
                break
            self.seen = list(self.committed.slot_moves.under_way)
            for _ in range(3):
                self.shards_act()
                self.deliver()
            self.drive()
        assert self.committed.plans.present is None, self.committed.plans.present
        assert not self.committed.slot_moves.under_way


@pytest.mark.parametrize("seed", range(30))
def test_the_map_follows_the_logs_whatever_happens(seed: int) -> None:
    world = World(random.Random(seed))
    chances = {
        world.plan: 2,
        world.drive: 10,
        world.stop: 1,
        world.commit: 20,
        world.lose_the_leader: 2,
        world.deliver: 15,
        world.shards_act: 40,
    }

    for step in range(STEPS):
        world.random.choices(list(chances), list(chances.values()))[0]()
        if step % 20 == 0:
            world.check()
    world.settle()
    # Whatever happened, a plan is possible now and comes to its end.
    command = wish(PlanKind.MOVE_SLOTS, into_shard=3, ranges=((0, 9_999),))
    world.propose(decide_plan_slots(world.pending, command, CONTEXT))
    world.settle()

    world.check()
    assert world.committed.slot_moves.moves, "no slot moved in this world"
    owners = owners_of(world.committed)
    assert [{owner} for owner in owners] == world.owners
