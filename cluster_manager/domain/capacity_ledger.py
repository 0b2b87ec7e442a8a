"""The capacity ledger: how many units of each broker session each shard may have assigned.

    sum of a session's leases  <=  granted by its broker manager  <=  capacity of the broker

A lease is a total: the shard may have so many units assigned there, all in all. It belongs to the
shard, not to one of its leaders, and it only grows. An expired lease stays counted. The shard may
have used every unit of it before it ended, and those topics are still served; only the shard
itself can say, by asking again, or the broker's session ends and nothing is assigned to it.

The ledger folds ``BrokerRecorded`` too: a session's capacity, its beginning and its end are facts
of the broker directory, and two records of one fact could disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from cluster_manager.domain.broker_directory import BrokerRecorded
from nextgen.kernel.decider import Accepted, Rejected, RejectionCode

SESSION_ENDED = "session_ended"


@dataclass(frozen=True, slots=True)
class Lease:
    """Units one shard may have assigned to one session. ``expires_at_ms`` is Unix time."""

    units: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class Account:
    """One broker's present session: what it has, what was granted of it, who holds how much."""

    session_id: str
    is_live: bool
    capacity_units: int
    granted_units: int = 0
    leases: Mapping[int, Lease] = field(default_factory=dict)

    @property
    def leased_units(self) -> int:
        return sum(lease.units for lease in self.leases.values())

    @property
    def free_units(self) -> int:
        """What can still be leased out of the grant."""
        return self.granted_units - self.leased_units


@dataclass(frozen=True, slots=True)
class Ledger:
    """All accounts by broker id. The mapping is never changed in place."""

    accounts: Mapping[str, Account] = field(default_factory=dict)

    def live_account(self, broker_id: str, session_id: str) -> Account | None:
        """Return the account of exactly this session while it is live."""
        account = self.accounts.get(broker_id)
        if account is None or not account.is_live or account.session_id != session_id:
            return None
        return account

    def lease_of(self, broker_id: str, shard_id: int) -> Lease | None:
        """Return what a shard holds of a broker's present session."""
        account = self.accounts.get(broker_id)
        return account.leases.get(shard_id) if account else None


@dataclass(frozen=True, slots=True)
class RecordGrant:
    """The broker manager granted ``units`` of a session in all."""

    broker_id: str
    session_id: str
    units: int


@dataclass(frozen=True, slots=True)
class LeaseCapacity:
    """Let a shard have ``units`` of a session in all, at least until ``expires_at_ms``."""

    broker_id: str
    session_id: str
    shard_id: int
    units: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ReleaseLeases:
    """Free whatever is leased of this session: it ended."""

    broker_id: str
    session_id: str


Command = RecordGrant | LeaseCapacity | ReleaseLeases


@dataclass(frozen=True, slots=True)
class CapacityGranted:
    """``units`` of the session may be leased out in all."""

    broker_id: str
    session_id: str
    units: int


@dataclass(frozen=True, slots=True)
class CapacityLeased:
    """The shard holds ``units`` of the session in all."""

    broker_id: str
    session_id: str
    shard_id: int
    units: int
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class CapacityLeaseReleased:
    """The shard holds nothing of the session."""

    broker_id: str
    session_id: str
    shard_id: int
    reason: str


LedgerEvent = CapacityGranted | CapacityLeased | CapacityLeaseReleased
FoldedEvent = LedgerEvent | BrokerRecorded

INITIAL = Ledger()


def decide(state: Ledger, command: Command) -> Accepted[LedgerEvent] | Rejected:
    """Decide one command; ``state`` must have folded the broker directory's events too."""
    match command:
        case RecordGrant():
            return _decide_record_grant(state, command)
        case LeaseCapacity():
            return _decide_lease_capacity(state, command)
        case ReleaseLeases():
            return _decide_release_leases(state, command)
    assert_never(command)


def evolve(state: Ledger, event: FoldedEvent) -> Ledger:
    """Return the ledger after ``event``."""
    if isinstance(event, BrokerRecorded):
        return _evolve_broker_recorded(state, event)
    account = state.accounts.get(event.broker_id)
    if account is None or account.session_id != event.session_id:
        return state
    match event:
        case CapacityGranted():
            changed = replace(account, granted_units=event.units)
        case CapacityLeased():
            lease = Lease(event.units, event.expires_at_ms)
            changed = replace(account, leases={**account.leases, event.shard_id: lease})
        case CapacityLeaseReleased():
            kept = {key: held for key, held in account.leases.items() if key != event.shard_id}
            changed = replace(account, leases=kept)
        case _:
            assert_never(event)
    return Ledger({**state.accounts, event.broker_id: changed})


def _session_expired(broker_id: str, session_id: str) -> Rejected:
    return Rejected(
        RejectionCode.SESSION_EXPIRED,
        f"session {session_id} is not the live session of broker {broker_id}",
    )


def _decide_record_grant(state: Ledger, command: RecordGrant) -> Accepted[LedgerEvent] | Rejected:
    account = state.live_account(command.broker_id, command.session_id)
    if account is None:
        return _session_expired(command.broker_id, command.session_id)
    if command.units > account.capacity_units:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"{command.units} units of broker {command.broker_id} were granted, "
            f"it has {account.capacity_units}",
        )
    # A grant never shrinks: a smaller one is an answer that was overtaken by a later one.
    if command.units <= account.granted_units:
        return Accepted(())
    return Accepted((CapacityGranted(command.broker_id, command.session_id, command.units),))


def _decide_lease_capacity(
    state: Ledger, command: LeaseCapacity
) -> Accepted[LedgerEvent] | Rejected:
    account = state.live_account(command.broker_id, command.session_id)
    if account is None:
        return _session_expired(command.broker_id, command.session_id)
    held = account.leases.get(command.shard_id, Lease(0, 0))
    units = max(held.units, command.units)
    expires_at_ms = max(held.expires_at_ms, command.expires_at_ms)
    if units <= 0:
        return Rejected(RejectionCode.NOT_ALLOWED, f"a lease of {command.units} units is none")
    if units - held.units > account.free_units:
        return Rejected(
            RejectionCode.NO_CAPACITY,
            f"broker {command.broker_id} has {account.free_units} units left, "
            f"shard {command.shard_id} wants {units - held.units} more",
        )
    if Lease(units, expires_at_ms) == held:
        return Accepted(())
    leased = CapacityLeased(
        command.broker_id, command.session_id, command.shard_id, units, expires_at_ms
    )
    return Accepted((leased,))


def _decide_release_leases(state: Ledger, command: ReleaseLeases) -> Accepted[LedgerEvent]:
    account = state.accounts.get(command.broker_id)
    if account is None or account.session_id != command.session_id:
        return Accepted(())
    return Accepted(
        tuple(
            CapacityLeaseReleased(command.broker_id, command.session_id, shard_id, SESSION_ENDED)
            for shard_id in sorted(account.leases)
        )
    )


def _evolve_broker_recorded(state: Ledger, event: BrokerRecorded) -> Ledger:
    broker = event.broker
    known = state.accounts.get(broker.broker_id)
    if known is not None and known.session_id == broker.session_id:
        # Capacity that shrinks within a session leaves what was granted before as it is.
        capacity_units = max(broker.capacity_units, known.granted_units)
        account = replace(known, is_live=broker.is_live, capacity_units=capacity_units)
    else:
        account = Account(broker.session_id, broker.is_live, broker.capacity_units)
    return Ledger({**state.accounts, broker.broker_id: account})
