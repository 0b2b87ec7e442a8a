"""The invariants of the cluster's simulation bite: what must not be is said when it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from brokers.adapters.ledger.memory_ledger import MemoryLedgerStore
from brokers.domain.holding import Holding, NamespaceMetadata
from brokers.domain.position import Position
from brokers.ports.ledger import NewEntry
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.cluster_simulation.invariants import Invariants
from tests.support.cluster_simulation.residents import Storage

UNIT = ("t-1", "")
NAME = "persistent://acme/orders/paid"


class Log:
    """Commits events, one entry each, as group 0 or a shard does."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.now = 100.0
        self.invariants = Invariants(self.violations.append, lambda: self.now)

    def commit(self, group_id: int, **payload: Any) -> None:
        self.invariants._fold(group_id, pb.Event(**payload))

    def session(self, session_id: str = "s-1", broker_id: str = "a", units: int = 10) -> None:
        self.commit(
            1,
            broker_session_established=pb.BrokerSessionEstablished(
                broker_id=broker_id, session_id=session_id, capacity_units=units
            ),
        )

    def grant(self, units: int) -> None:
        self.commit(0, capacity_granted=pb.CapacityGranted(session_id="s-1", units=units))

    def lease(self, shard_id: int, units: int) -> None:
        event = pb.CapacityLeased(session_id="s-1", shard_id=shard_id, units=units)
        self.commit(0, capacity_leased=event)

    def assign(self, epoch: int, broker_id: str = "a", session_id: str = "s-1") -> None:
        event = pb.TopicAssigned(
            topic_id="t-1", name=NAME, epoch=epoch, broker_id=broker_id, session_id=session_id
        )
        self.commit(1, topic_assigned=event)


@pytest.fixture
def log() -> Log:
    log = Log()
    log.session()
    return log


def test_leases_beyond_the_grant_and_a_grant_beyond_the_capacity_are_seen(log: Log):
    log.grant(10)
    log.lease(1, 6)
    log.lease(2, 4)
    assert log.violations == []

    log.lease(2, 5)
    assert "leased 11, granted 10" in log.violations.pop()
    log.grant(11)
    assert "granted 11, capacity 10" in log.violations.pop()


def test_what_a_shard_gives_back_others_may_have(log: Log):
    log.grant(10)
    log.lease(1, 10)
    log.lease(1, 4)
    log.lease(2, 6)
    event = pb.CapacityLeaseReleased(session_id="s-1", shard_id=1)
    log.commit(0, capacity_lease_released=event)
    log.lease(3, 4)

    assert log.violations == []
    assert log.invariants.units_returned == 10


def test_an_assignment_beyond_the_lease_is_seen(log: Log):
    log.grant(10)
    log.assign(1)

    assert "has 1 units at s-1, its lease is 0" in log.violations.pop()


def test_who_acknowledges_in_the_epoch_of_another_is_seen(log: Log):
    log.grant(10)
    log.lease(1, 10)
    log.session("s-2", "b")
    log.assign(1)

    log.invariants.check_acknowledged(UNIT, NAME, 1, "a")
    assert log.violations == []
    log.invariants.check_acknowledged(UNIT, NAME, 1, "b")
    log.invariants.check_acknowledged(UNIT, NAME, 2, "a")

    assert ["is a's" in log.violations[0], "is nobody's" in log.violations[1]] == [True, True]


def test_policies_that_skip_a_version_are_seen(log: Log):
    log.commit(1, tenant_created=pb.TenantCreated(tenant_id="t", name="acme"))
    for version in (1, 2, 4):
        event = pb.PolicySet(scope="tenant", name="acme", object_id="t", version=version)
        log.commit(1, policy_set=event)

    assert log.violations == ["policies 4 of acme came after 2"]
    assert log.invariants.versions["t"] == 4


def test_a_broker_that_is_behind_what_is_effective_is_seen(log: Log):
    holding = Holding()
    holding.apply(NamespaceMetadata("n", "acme/orders", {}, 3), 0)
    session = SimpleNamespace(holding=holding, session_id="s-1")

    log.invariants.check_effective("a", session, "acme/orders", "n", 3)
    log.invariants.check_effective("a", session, "acme/orders", "another of that name", 4)
    log.invariants.check_effective("a", session, "acme/unheard-of", "m", 4)
    assert log.violations == []
    log.invariants.check_effective("a", session, "acme/orders", "n", 4)

    assert log.violations == ["version 4 of acme/orders was said to be effective, a has 3"]


def test_a_session_goes_on_until_its_end_is_committed(log: Log):
    assert log.invariants.goes_on("s-1")
    assert not log.invariants.goes_on("s-2")

    log.commit(1, broker_session_ended=pb.BrokerSessionEnded(session_id="s-1"))

    assert not log.invariants.goes_on("s-1")


async def test_what_was_acknowledged_and_is_not_stored_is_seen():
    storage = Storage()
    ledger = await MemoryLedgerStore(storage.ledgers).open(*UNIT, 1, topic_name=NAME)
    position = await ledger.append(NewEntry(b"1", 1, "p", 1))
    storage.acknowledged[UNIT] = {position: b"1"}
    assert list(storage.lost()) == []

    storage.acknowledged[UNIT][Position(position.ledger_id, 1)] = b"2"
    assert [f"{position.ledger_id}:1" in lost for lost in storage.lost()] == [True]


async def test_an_owner_that_stores_behind_a_later_one_is_seen():
    """What fences are for: without them the earlier owner's entry comes last, out of order."""
    storage = Storage()
    old = await MemoryLedgerStore(storage.ledgers).open(*UNIT, 1, topic_name=NAME)
    new = await MemoryLedgerStore(storage.ledgers).open(*UNIT, 2, topic_name=NAME)
    position = await new.append(NewEntry(b"1", 1, "p", 1))
    storage.acknowledged[UNIT] = {position: b"1"}
    storage.ledgers.units[UNIT].claims.pop(2)

    await old.append(NewEntry(b"2", 1, "p", 2))

    assert ["in no order" in lost for lost in storage.lost()] == [True]


# Lookups -----------------------------------------------------------------------------------------


def given(log: Log, epoch: int, began_at: float, *, node: str = "d-1", **how: bool) -> list[str]:
    """Have a lookup that began then be answered at this moment; return what is wrong with it."""
    log.violations.clear()
    answer = LookupAnswer(topic=NAME, topic_id="t-1", epoch=epoch)
    log.invariants.freshness.judge(answer, began_at, node=node, **how)
    return [each.partition(":")[0] for each in log.violations]


@pytest.fixture
def moved(log: Log) -> Log:
    """Epoch 1 was over at 100 s."""
    log.assign(1)
    log.assign(2)
    log.violations.clear()
    log.now = 110.0
    return log


@pytest.mark.parametrize(("began_at", "wrong"), [(99.0, []), (101.5, []), (101.6, ["Lookups"])])
def test_an_answer_that_was_over_for_too_long_is_seen(
    moved: Log, began_at: float, wrong: list[str]
) -> None:
    assert given(moved, 1, began_at) == [f"{each}AreRecent" for each in wrong]
    assert given(moved, 2, 110.0) == []


def test_an_answer_about_a_unit_that_nobody_has_any_more_grows_old_as_well(moved: Log) -> None:
    moved.commit(1, topic_unassigned=pb.TopicUnassigned(topic_id="t-1", name=NAME, epoch=2))
    assert moved.violations == []

    assert given(moved, 2, 111.4) == []
    assert given(moved, 2, 111.6) == ["LookupsAreRecent"]


@pytest.mark.parametrize(("began_at", "is_seen"), [(100.0, False), (100.1, True)])
def test_a_fresh_answer_that_was_over_when_it_was_asked_for_is_seen(
    moved: Log, began_at: float, is_seen: bool
) -> None:
    assert bool(given(moved, 1, began_at, is_fresh=True)) == is_seen


def test_a_node_that_goes_back_is_seen_and_two_nodes_may_differ(moved: Log) -> None:
    moved.now = 100.5
    assert given(moved, 2, 100.4) == []
    moved.now = 101.0

    assert given(moved, 1, 100.5) == [], "both were asked for at the same time"
    assert given(moved, 1, 100.6) == ["NodesNeverGoBack"]
    assert given(moved, 1, 100.6, node="d-2") == []


def test_a_topic_that_was_created_again_goes_on_behind_what_it_was(moved: Log) -> None:
    again = pb.TopicAssigned(topic_id="t-2", name=NAME, epoch=1, broker_id="a", session_id="s-1")
    moved.commit(1, topic_assigned=again)
    answer = LookupAnswer(topic=NAME, topic_id="t-2", epoch=1)
    moved.invariants.freshness.judge(answer, 110.0, node="d-1")
    moved.now = 110.5

    assert given(moved, 2, 110.1) == ["NodesNeverGoBack"]
