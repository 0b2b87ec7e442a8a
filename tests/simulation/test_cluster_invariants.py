"""The invariants of the cluster's simulation can fail: each violation is reported."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokers.adapters.ledger.format.files import ENTRIES, UnitDirectory
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.holding import Holding, NamespaceMetadata
from brokers.domain.position import Position, ledger_id_of
from brokers.ports.ledger import LedgerDamaged, NewEntry, StorageFailed
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.cluster_simulation.clients.residents import Resident
from tests.support.cluster_simulation.judges.invariants import Invariants
from tests.support.cluster_simulation.judges.ledgers import LEDGERS, Rot, Storage, newest_records

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


@asynccontextmanager
async def broker_on(storage: Storage, name: str = "b") -> AsyncIterator[DiskLedgerStore]:
    broker = DiskLedgerStore(LEDGERS, broker_id=name, storage=storage.disk)
    yield broker
    await broker.close()


async def store_some(storage: Storage, rounds: int = 1, epoch: int = 1) -> list[Position]:
    """Make a broker acknowledge this number of entries, each in a round of its own."""
    async with broker_on(storage) as broker:
        ledger = await broker.open(*UNIT, epoch, topic_name=NAME)
        positions = [await ledger.append(NewEntry(b"%d" % n, 1, "p", n)) for n in range(rounds)]
    known = storage.acknowledged.setdefault(UNIT, {})
    known.update({position: b"%d" % n for n, position in enumerate(positions)})
    return positions


async def test_what_was_acknowledged_and_is_not_stored_is_seen():
    storage = Storage()
    (position,) = await store_some(storage)
    assert list(storage.lost()) == []

    storage.acknowledged[UNIT][position] = b"2"
    assert list(storage.lost()) == [f"{position} of {UNIT} was acknowledged and is lost"]


async def test_messages_may_be_missing_only_of_a_topic_that_was_deleted():
    storage = Storage()
    (position,) = await store_some(storage)
    path = Path(UnitDirectory(LEDGERS, *UNIT).path)
    storage.disk.remove_tree(path)
    storage.disk.sync_directory(path.parent, label="a test")

    assert list(storage.lost()) == [f"{position} of {UNIT} was acknowledged and is lost"]
    storage.deleted = {"another topic": 0.0}
    assert len(list(storage.lost())) == 1
    storage.deleted = {UNIT[0]: 0.0}
    assert list(storage.lost()) == []


async def test_an_owner_that_stores_behind_a_later_one_is_seen():
    """What fences are for: without them the earlier owner's entry is behind its epoch's seal."""
    storage = Storage()
    async with broker_on(storage, "a") as first, broker_on(storage, "b") as second:
        old = await first.open(*UNIT, 1, topic_name=NAME)
        before = await old.append(NewEntry(b"1", 1, "p", 1))
        await second.open(*UNIT, 2, topic_name=NAME)
        storage.disk.unlink(UnitDirectory(LEDGERS, *UNIT).fence(1))

        behind = await old.append(NewEntry(b"2", 1, "p", 2))

    storage.acknowledged[UNIT] = {before: b"1", behind: b"2"}
    assert [f"{behind} of" in lost for lost in storage.lost()] == [True]


async def test_what_was_acknowledged_and_is_not_durable_is_seen():
    storage = Storage()
    storage.disk.ignore_sync("ledger.entries")

    await store_some(storage)

    assert ["cannot be read" in lost for lost in storage.lost()] == [True]


async def test_a_seal_that_counts_what_is_not_durable_is_seen():
    storage = Storage()
    (first, second) = await store_some(storage, rounds=2)
    path = Path(UnitDirectory(LEDGERS, *UNIT).numbered(1, 0, ENTRIES))
    await store_some(storage, rounds=0, epoch=2)
    _, _, records = newest_records(UnitDirectory(LEDGERS, *UNIT, storage.disk)) or ("", 0, [])
    storage.disk.damage(path, records[1].offset, bytes(records[1].end - records[1].offset))
    del storage.acknowledged[UNIT][second]

    assert list(storage.lost()) == [
        f"{UNIT} is sealed with entries that are not there, in [{first.ledger_id}]"
    ]


async def test_a_lost_disk_takes_along_what_was_acknowledged_before():
    storage = Storage()
    await store_some(storage)

    storage.replace_disk()

    assert list(storage.lost()) == []
    (position,) = await store_some(storage, epoch=2)
    storage.acknowledged[UNIT][position] = b"2"
    assert len(list(storage.lost())) == 1


async def test_rot_may_be_reported_but_only_the_last_round_may_go_silently():
    """Whichever of the entries is damaged: a successor refuses, or has all that were before."""
    for seed in range(20):
        storage = Storage()
        positions = await store_some(storage, rounds=4)
        assert storage.rot(random.Random(seed))
        rot = storage.rotten[UNIT]
        assert rot.last_round == 3
        assert not storage.rot(random.Random(seed)), "no other unit has anything"

        assert list(storage.lost()) == []
        assert storage.is_damaged(UNIT[0])
        silently = [storage.may_be_missing(UNIT, each, is_reported=False) for each in positions]
        assert silently == [False, False, False, rot.entry_id <= 3]


async def test_damage_that_is_taken_for_a_torn_tail_is_seen():
    storage = Storage()
    positions = await store_some(storage, rounds=4)
    storage.rotten[UNIT] = Rot(positions[0].ledger_id, 1, 3)
    storage.acknowledged[UNIT] = dict.fromkeys(positions, b"gone")

    assert list(storage.lost()) == [
        f"{position} of {UNIT} was acknowledged and is lost" for position in positions[:3]
    ]


class HalfRead:
    """A topic whose ledger has other entries than were acknowledged, or is reported damaged."""

    def __init__(self, found: dict[Position, bytes], error: Exception | None = None) -> None:
        self.unit = SimpleNamespace(key=UNIT, topic_id=UNIT[0], epoch=1)
        self.ledger = self
        self._found = found
        self._error = error

    async def read(self, after: Position, **_: int) -> list[Any]:
        if self._error is not None:
            raise self._error
        return [
            SimpleNamespace(position=position, payload=payload)
            for position, payload in self._found.items()
            if position > after
        ]


@pytest.mark.parametrize(
    ("topic", "is_rotten", "seen"),
    [
        (HalfRead({Position(1 << 24, 0): b"0", Position(1 << 24, 1): b"1"}), False, 0),
        (HalfRead({Position(1 << 24, 0): b"0"}), False, 1),
        (HalfRead({Position(1 << 24, 0): b"0", Position(1 << 24, 1): b"2"}), False, 1),
        (HalfRead({}), False, 2),
        (HalfRead({}, LedgerDamaged("")), False, 1),
        (HalfRead({}, LedgerDamaged("")), True, 0),
        (HalfRead({}, StorageFailed("")), False, 0),
    ],
    ids=["all", "one less", "another", "none", "damaged", "rotten", "not now"],
)
async def test_what_was_acknowledged_and_is_not_read_again_is_seen(
    topic: HalfRead, is_rotten: bool, seen: int
):
    ledger_id = ledger_id_of(1, 0)
    topic._found = {Position(ledger_id, p.entry_id): data for p, data in topic._found.items()}
    storage, violations = Storage(), list[str]()
    storage.acknowledged[UNIT] = {Position(ledger_id, n): b"%d" % n for n in range(2)}
    if is_rotten:
        storage.rotten[UNIT] = Rot(ledger_id, 1, 1)
    nothing: Any = SimpleNamespace(topics=None)
    chance = random.Random(1)
    chance.random = lambda: 0.0  # type: ignore[method-assign]
    resident = Resident("b", nothing, nothing, storage, chance, lambda *_: None, violations.append)

    await resident._read_again(topic)

    assert len(violations) == seen


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
