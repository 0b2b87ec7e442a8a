"""The capacity ledger: how many units of each broker session each shard may have assigned.

    sum of a session's leases  <=  granted by its broker manager  <=  capacity of the broker

When the capacity shrinks within a session, the grant follows it, but never below the leases:

    granted  <=  max(capacity, sum of the leases)

So while the leases exceed the capacity, the grant is their sum: no lease grows, each one that
shrinks lowers the grant, and once they fit the second inequality above holds again.

Where the broker has a quota, no lease grows so that the sum exceeds it either. What was leased
before the quota was set stays until it is returned or expires.

A lease is a total: the number of units that the shard may have assigned to the session. It belongs
to the shard, not to one of its leaders. It shrinks in two ways only, and never below the use that
the shard reported:

    returned  the shard stopped using the rest BEFORE it sent the return. The return names the
              version of the lease, so one that is late or repeated is recognised and refused
    expired   the shard's leaders sent no request for so long that every lease has ended there. The
              units in the shard's last report of use stay reserved

Units that were assigned under a lease are served on after it ended. ``version`` grows by one with
each change of the units and is never used twice within a session, so a lease of no unit is kept.
``term`` is that of the shard leader that got the last answer. Requests of earlier terms are
refused: an earlier leader may return units that its successor has assigned.

The ledger folds ``BrokerRecorded`` and ``QuotasSet`` too. A session's capacity, beginning and end
are facts of the broker directory; a second record of them could disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from cluster_manager.domain.broker_directory import BrokerRecorded
from cluster_manager.domain.quotas import QuotasSet
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode

SESSION_ENDED = "session_ended"


@dataclass(frozen=True, slots=True)
class Lease:
    """Units of a session that one shard may have assigned. ``expires_at_ms`` is Unix time, for
    people and for the shard's next answer. Its passing frees nothing."""

    units: int
    expires_at_ms: int
    version: int = 0
    units_used: int = 0
    """Units in use by the shard's last report."""

    term: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """One broker's present session: its capacity, the units granted, and the leases by shard."""

    session_id: str
    is_live: bool
    capacity_units: int
    granted_units: int = 0
    leases: Mapping[int, Lease] = field(default_factory=dict)

    @property
    def leased_units(self) -> int:
        return sum(lease.units for lease in self.leases.values())

    @property
    def is_shrinking(self) -> bool:
        """Whether more is leased than the broker has."""
        return self.leased_units > self.capacity_units


@dataclass(frozen=True, slots=True)
class Ledger:
    """All accounts, and the quotas, by broker id. The mappings are never changed in place."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Quotas: units that may be leased in all. Other brokers are limited by their grants only."""

    def live_account(self, broker_id: str, session_id: str) -> Account | None:
        """Return the account of exactly this session while it is live."""
        account = self.accounts.get(broker_id)
        if account is None or not account.is_live or account.session_id != session_id:
            return None
        return account

    def free_units(self, broker_id: str) -> int:
        """Return the units that can still be leased within the grant and the quota."""
        account = self.accounts[broker_id]
        bound = min(account.granted_units, self.quotas.get(broker_id, account.granted_units))
        return max(0, bound - account.leased_units)

    def leasable_units(self, broker_id: str) -> int:
        """Return how many units of the broker may be leased if its whole capacity is granted."""
        capacity_units = self.accounts[broker_id].capacity_units
        return min(capacity_units, self.quotas.get(broker_id, capacity_units))

    def lease_of(self, broker_id: str, shard_id: int) -> Lease | None:
        """Return a shard's lease of a broker's present session."""
        account = self.accounts.get(broker_id)
        return account.leases.get(shard_id) if account else None

    def term_of(self, shard_id: int) -> int:
        """Return the latest term of the shard whose leader got a lease."""
        held = (account.leases.get(shard_id) for account in self.accounts.values())
        return max((lease.term for lease in held if lease is not None), default=0)


@dataclass(frozen=True, slots=True)
class RecordGrant:
    """Record that the broker manager granted ``units`` of a session in all."""

    broker_id: str
    session_id: str
    units: int


@dataclass(frozen=True, slots=True)
class LeaseCapacity:
    """Lease ``units`` of a session in all to a shard, at least until ``expires_at_ms``.

    ``units_used`` is the use that its leader of ``term`` reports.
    """

    broker_id: str
    session_id: str
    shard_id: int
    units: int
    expires_at_ms: int
    term: int = 0
    units_used: int = 0


@dataclass(frozen=True, slots=True)
class ReturnUnits:
    """Return the units of a shard's lease with this ``version`` that exceed ``units``.

    Do not repeat it blindly: an accepted return is refused the second time.
    """

    broker_id: str
    session_id: str
    shard_id: int
    units: int
    version: int
    term: int = 0


@dataclass(frozen=True, slots=True)
class ExpireLease:
    """End a lease. The caller MUST be sure that no leader of the shard still uses it.

    ``units_used`` is the use that the shard reported last, if it exceeds the ledger's number.
    """

    broker_id: str
    session_id: str
    shard_id: int
    units_used: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseLeases:
    """Free all leases of this session, which has ended."""

    broker_id: str
    session_id: str


Command = RecordGrant | LeaseCapacity | ReturnUnits | ExpireLease | ReleaseLeases


@dataclass(frozen=True, slots=True)
class CapacityGranted:
    """``units`` of the session may be leased in all."""

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
    version: int = 0
    units_used: int = 0
    term: int = 0


@dataclass(frozen=True, slots=True)
class CapacityLeaseReleased:
    """The shard holds nothing of the session."""

    broker_id: str
    session_id: str
    shard_id: int
    reason: str


LedgerEvent = CapacityGranted | CapacityLeased | CapacityLeaseReleased
FoldedEvent = LedgerEvent | BrokerRecorded | QuotasSet

INITIAL = Ledger()


def decide(state: Ledger, command: Command) -> Accepted[LedgerEvent] | Rejected:
    """Decide one command; ``state`` must have folded the broker directory's events too."""
    match command:
        case RecordGrant():
            return _decide_record_grant(state, command)
        case LeaseCapacity():
            return _decide_lease_capacity(state, command)
        case ReturnUnits():
            return _decide_return(state, command)
        case ExpireLease():
            return _decide_expire(state, command)
        case ReleaseLeases():
            return _decide_release_leases(state, command)
    assert_never(command)


def evolve(state: Ledger, event: FoldedEvent) -> Ledger:
    """Return the ledger after ``event``."""
    if isinstance(event, BrokerRecorded):
        return _evolve_broker_recorded(state, event)
    if isinstance(event, QuotasSet):
        return replace(state, quotas=event.quotas.brokers)
    account = state.accounts.get(event.broker_id)
    if account is None or account.session_id != event.session_id:
        return state
    match event:
        case CapacityGranted():
            changed = replace(account, granted_units=event.units)
        case CapacityLeased():
            lease = Lease(
                event.units, event.expires_at_ms, event.version, event.units_used, event.term
            )
            changed = replace(account, leases={**account.leases, event.shard_id: lease})
        case CapacityLeaseReleased():
            kept = {key: held for key, held in account.leases.items() if key != event.shard_id}
            changed = replace(account, leases=kept)
        case _:
            assert_never(event)
    return replace(state, accounts={**state.accounts, event.broker_id: _within_capacity(changed)})


def _within_capacity(account: Account) -> Account:
    """Return ``account`` with the grant that its capacity and leases allow."""
    most = max(account.capacity_units, account.leased_units)
    if account.granted_units <= most:
        return account
    return replace(account, granted_units=most)


def _session_expired(broker_id: str, session_id: str) -> Rejected:
    return Rejected(
        RejectionCode.SESSION_EXPIRED,
        f"session {session_id} is not the live session of broker {broker_id}",
    )


def _stale_term(command: LeaseCapacity | ReturnUnits, held: Lease) -> Rejected:
    return Rejected(
        RejectionCode.STALE_EPOCH,
        f"shard {command.shard_id} got its lease at term {held.term}, "
        f"the request is of term {command.term}",
    )


def _leased(command: LeaseCapacity | ReturnUnits | ExpireLease, lease: Lease) -> CapacityLeased:
    return CapacityLeased(
        command.broker_id,
        command.session_id,
        command.shard_id,
        lease.units,
        lease.expires_at_ms,
        lease.version,
        lease.units_used,
        lease.term,
    )


def _shrunk(lease: Lease, units: int) -> Lease:
    used = min(lease.units_used, units)
    return replace(lease, units=units, version=lease.version + 1, units_used=used)


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
    # A smaller one is an answer that a later one overtook: grants shrink with the capacity only.
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
    if command.term < held.term:
        return _stale_term(command, held)
    units = max(held.units, command.units)
    if units <= 0:
        return Rejected(RejectionCode.NOT_ALLOWED, f"a lease of {command.units} units is none")
    free_units = state.free_units(command.broker_id)
    if units - held.units > free_units:
        return Rejected(
            RejectionCode.NO_CAPACITY,
            f"broker {command.broker_id} has {free_units} units left, "
            f"shard {command.shard_id} wants {units - held.units} more",
        )
    lease = Lease(
        units,
        max(held.expires_at_ms, command.expires_at_ms),
        held.version + 1 if units > held.units else held.version,
        min(units, command.units_used),
        command.term,
    )
    return Accepted(()) if lease == held else Accepted((_leased(command, lease),))


def _decide_return(state: Ledger, command: ReturnUnits) -> Accepted[LedgerEvent] | Rejected:
    account = state.live_account(command.broker_id, command.session_id)
    if account is None:
        return _session_expired(command.broker_id, command.session_id)
    held = account.leases.get(command.shard_id)
    if held is None:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"shard {command.shard_id} has no lease of broker {command.broker_id}",
        )
    if command.term < held.term:
        return _stale_term(command, held)
    if command.version != held.version:
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"the lease of shard {command.shard_id} of broker {command.broker_id} is at version "
            f"{held.version}, the return is of version {command.version}",
        )
    if not 0 <= command.units < held.units:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"shard {command.shard_id} has {held.units} units of broker {command.broker_id}: "
            f"keeping {command.units} of them returns nothing",
        )
    return Accepted((_leased(command, _shrunk(held, command.units)),))


def _decide_expire(state: Ledger, command: ExpireLease) -> Accepted[LedgerEvent] | Rejected:
    account = state.live_account(command.broker_id, command.session_id)
    if account is None:
        return _session_expired(command.broker_id, command.session_id)
    held = account.leases.get(command.shard_id)
    if held is None:
        return Accepted(())
    units = max(held.units_used, command.units_used)
    if units >= held.units:
        return Accepted(())
    return Accepted((_leased(command, _shrunk(held, units)),))


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
        account = _within_capacity(
            replace(known, is_live=broker.is_live, capacity_units=broker.capacity_units)
        )
    else:
        account = Account(broker.session_id, broker.is_live, broker.capacity_units)
    return replace(state, accounts={**state.accounts, broker.broker_id: account})
