"""Capacity leases of one shard, per broker session.

Soft state of one leader. The cluster manager's ledger holds the leases: a new leader renews them
and has them back within one round trip. The assigned units are in the shard's own log.

    leased ──▶ unused for long ──▶ returning: only the kept part is used ──▶ leased again, once the
                                                                    ledger states a later version

Where a broker's capacity was lowered, the ledger states for each lease the units to keep. From then
on the shard assigns nothing above that bound, returns what it does not use above it, and ``excess``
has to leave the broker; what has left is returned in turn.

Units in slots that left for another shard go along. Until the cluster manager has moved them in its
ledger, the lease here is smaller by them, and nothing of that session is returned: see ``give``.

While a return is under way, the shard does not use the returned units. It ends with a later version
of the lease, whether or not the return was accepted: from then on the ledger refuses every copy of
that return. The ledger refuses returns of an earlier leader by its term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nextgen.kernel.governance.capacity_blocks import units_to_keep
from nextgen.kernel.limits.placement import LEASE_UNUSED_MS
from protos.nextgen.v1.cluster_service_pb2 import CapacityLease, LeaseReturn
from shards.domain.slots.events import OutgoingSlots


@dataclass(frozen=True, slots=True)
class Lease:
    """The shard may have ``units`` assigned to the session, in all, until ``expires_at``."""

    broker_id: str
    session_id: str
    units: int
    expires_at: float  # Monotonic seconds.
    version: int = 0
    """The cluster manager's version; 0 from a release that takes nothing back."""

    units_to_keep: int | None = None
    """The units that fit the broker's capacity; None: all do."""


@dataclass(frozen=True, slots=True)
class _Return:
    broker_id: str
    keeps: int
    version: int


class _Need:
    """The most units in use lately, over at least ``LEASE_UNUSED_MS`` once that has passed."""

    __slots__ = ("_before", "_peak", "_since", "used")

    def __init__(self, now: float) -> None:
        self._since = now
        self._peak = 0
        self._before: int | None = None
        self.used = 0
        """The units in use as noted last."""

    def note(self, used: int, now: float) -> None:
        self.used = used
        if now - self._since >= LEASE_UNUSED_MS / 1000:
            self._before, self._peak, self._since = self._peak, used, now
        elif used > self._peak:
            self._peak = used

    @property
    def units(self) -> int | None:
        """None until ``LEASE_UNUSED_MS`` have passed."""
        return None if self._before is None else max(self._before, self._peak)


class LeaseTable:
    """The leases of one shard as the cluster manager last stated them."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        """What may be used of each lease."""

        self._stated: dict[str, Lease] = {}
        """The leases as the cluster manager stated them."""

        self._returning: dict[str, _Return] = {}
        self._needs: dict[str, _Need] = {}
        self._given: Mapping[str, int] = {}

    def __repr__(self) -> str:
        return (
            f"<LeaseTable sessions={len(self._leases)} units={self.units_leased} "
            f"returning={len(self._returning)}>"
        )

    @property
    def units_leased(self) -> int:
        return sum(lease.units for lease in self._leases.values())

    def session_ids(self) -> tuple[str, ...]:
        return tuple(self._leases)

    def lease(self, session_id: str, now: float) -> Lease | None:
        """Return the lease on a session unless it has expired."""
        lease = self._leases.get(session_id)
        return lease if lease is not None and now < lease.expires_at else None

    def give(self, given: Mapping[str, int]) -> None:
        """Use so many units less of the lease on each session: all that left with slots to other
        shards, and that the stated leases still contain, as far as is known here."""
        if given != self._given:
            self._given = dict(given)
            self._leases = {
                session_id: self._limited(session_id, lease)
                for session_id, lease in self._stated.items()
            }

    def excess(self, session_id: str, units_used: int) -> int:
        """Return how many of ``units_used`` units have to leave a session whose broker has less
        capacity than is leased."""
        stated = self._stated.get(session_id)
        if stated is None or stated.units_to_keep is None:
            return 0
        return max(0, units_used - stated.units_to_keep)

    @property
    def may_return_excess(self) -> bool:
        """Whether a session has units that ``begin_excess_returns`` would return, or units that
        have to leave it."""
        return any(
            lease.units_to_keep is not None and lease.units > lease.units_to_keep
            for lease in self._stated.values()
        )

    def note_use(self, session_id: str, units_used: int, now: float) -> None:
        """Note the units in use at this moment: units used lately are not returned."""
        need = self._needs.get(session_id)
        if need is None:
            need = self._needs[session_id] = _Need(now)
        need.note(units_used, now)

    def begin_returns(self, first_blocks: Mapping[str, int]) -> None:
        """Begin to return units that were not needed for ``LEASE_UNUSED_MS``.

        ``first_blocks`` has, by session id, the least that is kept; sessions that it lacks return
        nothing.
        """
        for session_id, lease in tuple(self._leases.items()):
            need = self._needs.get(session_id)
            needed = None if need is None else need.units
            if needed is None or not lease.version or session_id in self._returning:
                continue
            if session_id in self._given:
                continue
            if lease.units_to_keep is not None:
                # See ``begin_excess_returns``: what is used above the bound is not returned.
                continue
            first = first_blocks.get(session_id, lease.units)
            keeps = units_to_keep(units=lease.units, needed=needed, first=first)
            if keeps < lease.units:
                self._returning[session_id] = _Return(lease.broker_id, keeps, lease.version)
                self._leases[session_id] = self._limited(session_id, lease)

    def begin_excess_returns(self) -> None:
        """Begin to return what the capacity has no room for, except the units noted as used."""
        for session_id, lease in self._stated.items():
            need = self._needs.get(session_id)
            if lease.units_to_keep is None or need is None or session_id in self._returning:
                continue
            if session_id in self._given:
                continue
            keeps = max(lease.units_to_keep, need.used)
            if keeps < lease.units and lease.version:
                self._returning[session_id] = _Return(lease.broker_id, keeps, lease.version)
                self._leases[session_id] = self._limited(session_id, lease)

    def returns(self) -> list[LeaseReturn]:
        """Return the returns under way. Every request carries them until they are settled."""
        return [
            LeaseReturn(
                broker_id=each.broker_id,
                session_id=session_id,
                units=each.keeps,
                version=each.version,
            )
            for session_id, each in self._returning.items()
        ]

    def replace(self, leases: Iterable[CapacityLease], asked_at: float) -> None:
        """Take over an answer of the cluster manager: all leases of the shard.

        Their time counts from ``asked_at``, when the request was sent, so they end here before they
        end at the cluster manager.
        """
        stated = [
            Lease(
                lease.broker_id,
                lease.session_id,
                lease.units,
                asked_at + lease.ttl_ms / 1000,
                lease.version,
                lease.units_to_keep if lease.HasField("units_to_keep") else None,
            )
            for lease in leases
        ]
        self._stated = {lease.session_id: lease for lease in stated}
        for lease in stated:
            returning = self._returning.get(lease.session_id)
            if returning is not None and lease.version > returning.version:
                del self._returning[lease.session_id]
        self._leases = {
            lease.session_id: self._limited(lease.session_id, lease) for lease in stated
        }

    def forget_sessions(self, live: Container[str]) -> None:
        """Forget sessions that are not ``live``: an ended session never returns."""
        for known in (self._returning, self._needs, self._stated):
            for session_id in [each for each in known if each not in live]:
                del known[session_id]

    def drop(self, session_id: str) -> None:
        """Forget the lease on a session that ended."""
        self._leases.pop(session_id, None)
        self._stated.pop(session_id, None)

    def renew_at(self, asked_at: float) -> float | None:
        """Return when to renew: a third of the shortest time left after ``asked_at`` on."""
        if not self._leases:
            return None
        soonest = min(lease.expires_at for lease in self._leases.values())
        return asked_at + max(0.0, soonest - asked_at) / 3

    def _limited(self, session_id: str, lease: Lease) -> Lease:
        """Return ``lease`` without what is being returned, what the capacity has no room for, and
        what left with slots."""
        returning = self._returning.get(session_id)
        units = lease.units if returning is None else min(lease.units, returning.keeps)
        if lease.units_to_keep is not None:
            units = min(units, lease.units_to_keep)
        units = max(0, units - self._given.get(session_id, 0))
        return lease if units == lease.units else replace(lease, units=units)


class GivenUnits:
    """The units of one shard's leases that left with slots, for one term.

    ``outgoing`` returns the moves in the shard's record. The shard that gets the slots counts their
    units as its own, and the cluster manager moves as many from lease to lease when it hears of
    that. No answer says that it is the first with the change. So units count as given while the
    move is in the record, and then until an answer that was requested later: the record has the
    move until its rows are removed, which begins behind the change.
    """

    def __init__(self, outgoing: Callable[[], Sequence[OutgoingSlots]]) -> None:
        self._outgoing = outgoing
        self._present: tuple[OutgoingSlots, ...] = ()
        self._settling: list[tuple[OutgoingSlots, float]] = []

    def look(self, now: float) -> bool:
        """Look at the moves in the record; return whether one of them ended. ``now`` and times of
        requests are of one clock."""
        present = tuple(self._outgoing())
        if present == self._present:
            return False
        ids = {each.move_id for each in present}
        ended = [each for each in self._present if each.move_id not in ids]
        self._settling += [(each, now) for each in ended]
        self._present = present
        return bool(ended)

    def stated(self, asked_at: float) -> None:
        """Note an answer of the cluster manager to a request that was sent at ``asked_at``."""
        self._settling = [each for each in self._settling if each[1] > asked_at]

    def units(self) -> Mapping[str, int]:
        """Return the given units by session id."""
        units: Counter[str] = Counter()
        for move in (*self._present, *(each for each, _ in self._settling)):
            for counted in move.session_units:
                units[counted.of] += counted.units
        return units
