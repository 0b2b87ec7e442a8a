"""Leases that come back, with everything between shard and ledger going wrong.

Requests are delivered late, twice, out of order or never, answers are lost, leaders of shards and
of the cluster manager change, the broker's capacity shrinks and grows, time passes. Whatever
happens: leased <= granted <= max(capacity, leased), so nothing is granted beyond the capacity but
what was leased before it shrank, and no leader of a shard believes in more units than the ledger
has reserved for its shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cluster_manager.domain.broker_directory import Broker, BrokerRecorded
from cluster_manager.domain.capacity_ledger import Account
from cluster_manager.domain.cluster import INITIAL, ClusterState, fold_events
from cluster_manager.domain.shard_map import ShardMap, ShardMapChanged, place_replicas
from cluster_manager.service.lease_allocator import SILENCE_MS, Silence, decide_leases, leases_of
from nextgen.kernel.governance.capacity_blocks import first_block
from nextgen.kernel.routing.slots import initial_table
from protos.nextgen.v1.cluster_service_pb2 import LeaseCapacityRequest, LeaseUse
from shards.assignment.lease_table import LeaseTable

CAPACITY = 100
SHARDS = (1, 2, 3)
SESSION = "s-1"
BROKER = Broker("broker-1", SESSION, 1, True, capacity_units=CAPACITY)
BEGAN = BrokerRecorded(BROKER)
MAP = ShardMapChanged(ShardMap(initial_table(SHARDS), place_replicas(SHARDS, ["a", "b", "c"], 3)))

shards = st.sampled_from(SHARDS)


@dataclass
class ShardModel:
    """A shard: what it has assigned outlives its leaders, their leases do not."""

    shard_id: int
    term: int = 1
    table: LeaseTable = field(default_factory=LeaseTable)
    used: int = 0
    waits_for: int | None = None
    """The request that its leader waits for: it has one at a time."""

    asked_at: float = 0.0

    def limit(self, now: float) -> int:
        lease = self.table.lease(SESSION, now)
        return 0 if lease is None else lease.units


class LeasesComeBack(RuleBasedStateMachine):
    """Shards on one side, the ledger on the other, and a network that has no manners."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0
        self.state: ClusterState = fold_events(INITIAL, (MAP, BEGAN))
        self.shards = {shard_id: ShardModel(shard_id) for shard_id in SHARDS}
        self.sent: list[LeaseCapacityRequest] = []
        self.led_since = self.now
        self.heard: dict[int, float] = {}
        self.said: dict[int, dict[str, int]] = {}
        self.overdrawn: set[int] = set()
        self.capacities = [CAPACITY]
        """All that the broker ever had in this session, the present one last."""

    # What shards do ---------------------------------------------------------------------------

    @initialize()
    def everybody_has_a_first_block(self) -> None:
        for shard_id in SHARDS:
            self.ask_and_hear(shard_id, 0)

    @rule(shard_id=shards, wanted=st.sampled_from([0, 0, 0, 5, 40]))
    def ask(self, shard_id: int, wanted: int) -> None:
        """As the lease keeper does."""
        shard = self.shards[shard_id]
        shard.table.note_use(SESSION, shard.used, self.now)
        shard.table.begin_excess_returns()
        if not wanted:
            shard.table.begin_returns({SESSION: first_block(CAPACITY, len(SHARDS))})
        request = LeaseCapacityRequest(
            shard_id=shard_id,
            term=shard.term,
            uses=[LeaseUse(broker_id="broker-1", session_id=SESSION, units_used=shard.used)],
            units_wanted=wanted,
            returns=shard.table.returns(),
        )
        shard.waits_for, shard.asked_at = len(self.sent), self.now
        self.sent.append(request)

    @rule(shard_id=shards, wanted=st.sampled_from([0, 0, 30]))
    def ask_and_hear(self, shard_id: int, wanted: int) -> None:
        self.ask(shard_id, wanted)
        self.deliver(len(self.sent) - 1, is_answered=True)

    @rule(shard_id=shards, units=st.integers(1, 40))
    def assign(self, shard_id: int, units: int) -> None:
        shard = self.shards[shard_id]
        shard.used = max(shard.used, min(shard.used + units, shard.limit(self.now)))
        shard.table.note_use(SESSION, shard.used, self.now)

    @rule(shard_id=shards, units=st.integers(1, 60))
    def unassign(self, shard_id: int, units: int) -> None:
        shard = self.shards[shard_id]
        shard.used = max(0, shard.used - units)

    @rule(shard_id=shards)
    def move_away(self, shard_id: int) -> None:
        """As an evacuation does: what does not fit the capacity leaves."""
        shard = self.shards[shard_id]
        shard.used -= shard.table.excess(SESSION, shard.used)

    @rule(units=st.sampled_from([1, 10, 30, 60, 99, CAPACITY]))
    def set_capacity(self, units: int) -> None:
        self.capacities.append(units)
        broker = replace(
            BROKER,
            capacity_units=units,
            announced_units=CAPACITY if units < CAPACITY else 0,
            revision=len(self.capacities) - 1,
        )
        self.state = fold_events(self.state, (BrokerRecorded(broker),))

    @rule(shard_id=shards, asks_at_once=st.booleans())
    def elect_another_leader(self, shard_id: int, asks_at_once: bool) -> None:
        shard = self.shards[shard_id]
        shard.term += 1
        shard.table, shard.waits_for = LeaseTable(), None
        if asks_at_once:
            self.ask_and_hear(shard_id, 0)

    # What happens to them ---------------------------------------------------------------------

    @rule(data=st.data(), is_answered=st.booleans())
    def deliver_any(self, data: st.DataObject, is_answered: bool) -> None:
        """One that was sent at any time, whether it was delivered before or not.

        The grant that comes with it may be one of an earlier capacity.
        """
        if self.sent:
            granted = data.draw(st.sampled_from(self.capacities))
            number = data.draw(st.integers(0, len(self.sent) - 1))
            self.deliver(number, is_answered=is_answered, granted=granted)

    @rule(seconds=st.sampled_from([1, 30, 95, 150, 301]))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @rule(shard_id=shards)
    def need_little_until_something_is_to_be_returned(self, shard_id: int) -> None:
        """Everybody renews in time; the first return is on its way when this ends."""
        for _ in range(12):
            self.ask_and_hear(shard_id, 40)
        self.shards[shard_id].used = 0
        for _ in range(22):
            self.now += 30
            for each in SHARDS:
                self.ask(each, 0)
                if each == shard_id and self.sent[-1].returns:
                    return
                self.deliver(len(self.sent) - 1, is_answered=True)

    @rule(data=st.data(), is_answered=st.booleans())
    def deliver_one_that_returns(self, data: st.DataObject, is_answered: bool) -> None:
        returning = [number for number, each in enumerate(self.sent) if each.returns]
        if returning:
            self.deliver(data.draw(st.sampled_from(returning)), is_answered=is_answered)

    @rule()
    def elect_another_cluster_manager(self) -> None:
        self.led_since = self.now
        self.heard.clear()
        self.said.clear()

    def deliver(self, number: int, *, is_answered: bool, granted: int = 0) -> None:
        """As the lease allocator does."""
        request = self.sent[number]
        if request.term < self.state.ledger.term_of(request.shard_id):
            return
        self.heard[request.shard_id] = self.now
        self.said[request.shard_id] = {use.session_id: use.units_used for use in request.uses}
        silent = {
            shard_id
            for shard_id in SHARDS
            if 1_000 * (self.now - self.heard.get(shard_id, self.led_since)) >= SILENCE_MS
        }
        now_ms = int(1_000 * self.now)
        grants = {("broker-1", SESSION): granted or self.capacities[-1]}
        decision = decide_leases(self.state, request, grants, now_ms, Silence(silent, self.said))
        self.state = decision.state
        self._note_overdrawn(silent)
        shard = self.shards[request.shard_id]
        if is_answered and shard.waits_for == number:
            shard.waits_for = None
            leases = leases_of(self.state, request.shard_id, now_ms, self.said)
            shard.table.replace(leases, shard.asked_at)

    def _note_overdrawn(self, silent: set[int]) -> None:
        for shard_id in silent:
            if self.shards[shard_id].used > self._leased(shard_id):
                self.overdrawn.add(shard_id)

    def account(self) -> Account:
        return self.state.ledger.accounts["broker-1"]

    def _leased(self, shard_id: int) -> int:
        lease = self.state.ledger.lease_of("broker-1", shard_id)
        return 0 if lease is None else lease.units

    # What must hold ---------------------------------------------------------------------------

    @invariant()
    def leased_is_within_the_grant_and_that_within_the_capacity(self) -> None:
        for account in self.state.ledger.accounts.values():
            assert account.capacity_units == self.capacities[-1]
            assert account.leased_units <= account.granted_units
            assert account.granted_units <= max(account.capacity_units, account.leased_units)

    @invariant()
    def no_leader_believes_in_more_than_is_reserved(self) -> None:
        for shard in self.shards.values():
            assert shard.limit(self.now) <= self._leased(shard.shard_id)

    @invariant()
    def what_is_assigned_is_reserved_unless_the_shard_was_silent_for_too_long(self) -> None:
        for shard in self.shards.values():
            if shard.used <= self._leased(shard.shard_id):
                self.overdrawn.discard(shard.shard_id)
            else:
                assert shard.shard_id in self.overdrawn


LeasesComeBack.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestLeasesComeBack = LeasesComeBack.TestCase


def _busy() -> LeasesComeBack:
    """Return a world where all three shards have leased and used all of the broker."""
    world = LeasesComeBack()
    world.everybody_has_a_first_block()
    for _ in range(12):
        for shard_id in SHARDS:
            world.ask_and_hear(shard_id, 40)
            world.assign(shard_id, 40)
    assert world.account().leased_units == CAPACITY
    return world


@pytest.mark.parametrize("units", [1, 30, 99])
def test_a_capacity_that_shrinks_is_kept_once_every_shard_has_asked_twice(units: int) -> None:
    """The first answer says what to keep; the second request returns what has left meanwhile."""
    world = _busy()
    before = {shard_id: world.shards[shard_id].used for shard_id in SHARDS}
    world.set_capacity(units)
    assert world.account().granted_units == world.account().leased_units == CAPACITY

    for shard_id in SHARDS:
        world.ask_and_hear(shard_id, 0)
        world.move_away(shard_id)
    for shard_id in SHARDS:
        world.ask_and_hear(shard_id, 0)

    assert world.account().leased_units == world.account().granted_units == units
    assert sum(shard.used for shard in world.shards.values()) == units
    assert all(world.shards[each].used <= before[each] for each in SHARDS)


def test_units_that_are_not_used_come_back_first_and_nothing_has_to_leave() -> None:
    world = _busy()
    for shard_id in SHARDS:
        world.shards[shard_id].used = 10
        world.ask_and_hear(shard_id, 0)
    world.set_capacity(30)

    for _ in range(2):
        for shard_id in SHARDS:
            world.ask_and_hear(shard_id, 0)

    assert world.account().leased_units == 30
    for shard in world.shards.values():
        assert shard.table.excess(SESSION, shard.used) == 0
        assert (shard.used, shard.limit(world.now)) == (10, 10)


def test_while_leases_exceed_the_capacity_no_shard_gets_more() -> None:
    world = _busy()
    world.set_capacity(60)
    leased = {shard_id: world._leased(shard_id) for shard_id in SHARDS}

    for _ in range(3):
        world.ask_and_hear(2, 30)

    assert all(world._leased(shard_id) <= leased[shard_id] for shard_id in SHARDS)


def test_a_grant_of_the_former_capacity_that_arrives_late_grants_nothing() -> None:
    world = _busy()
    world.set_capacity(30)
    for _ in range(2):
        for shard_id in SHARDS:
            world.ask_and_hear(shard_id, 0)
            world.move_away(shard_id)
    for shard_id in SHARDS:
        world.ask(shard_id, 40)

    for number in range(len(world.sent) - len(SHARDS), len(world.sent)):
        world.deliver(number, is_answered=True, granted=CAPACITY)

    assert world.account().granted_units == 30
    assert world.account().leased_units == 30


def test_a_capacity_that_grows_again_is_leased_again() -> None:
    world = _busy()
    world.set_capacity(30)
    for _ in range(2):
        for shard_id in SHARDS:
            world.ask_and_hear(shard_id, 0)
            world.move_away(shard_id)
    world.set_capacity(CAPACITY)

    for _ in range(12):
        world.ask_and_hear(1, 40)

    assert world.account().granted_units == CAPACITY
    assert world.shards[1].limit(world.now) > 30


def test_units_that_nobody_needs_any_more_serve_another_shard_in_the_end() -> None:
    """The model's own steps, in the order in which they are meant to happen."""
    world = LeasesComeBack()
    world.everybody_has_a_first_block()
    for _ in range(12):
        world.ask_and_hear(1, 40)
        world.assign(1, 40)
    held = world.shards[1].limit(world.now)
    world.unassign(1, held)
    for _ in range(24):
        world.pass_time(30)
        for shard_id in SHARDS:
            world.ask_and_hear(shard_id, 0)

    for _ in range(12):
        world.ask_and_hear(2, 40)

    assert held > CAPACITY // 2
    assert world.shards[1].limit(world.now) == first_block(CAPACITY, len(SHARDS))
    assert world.shards[2].limit(world.now) > CAPACITY // 2


def test_what_a_deposed_leader_returns_late_is_not_taken_from_its_successor() -> None:
    """1. A return is sent. 2. Another leader grants the lease anew. 3. The return arrives."""
    world = LeasesComeBack()
    world.everybody_has_a_first_block()
    world.need_little_until_something_is_to_be_returned(1)
    late = len(world.sent) - 1
    assert world.sent[late].returns
    world.elect_another_leader(1, asks_at_once=True)
    told = world.shards[1].limit(world.now)

    world.deliver(late, is_answered=False)

    world.no_leader_believes_in_more_than_is_reserved()
    assert world.shards[1].limit(world.now) == told > world.sent[late].returns[0].units
