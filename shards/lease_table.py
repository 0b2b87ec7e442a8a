"""Capacity that this shard's topic controller may use, per broker session.

Soft state of one leader. The truth is the cluster manager's ledger: a new leader renews the same
leases and has them back within one round trip, and what is assigned is in the shard's own log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protos.nextgen.v1.cluster_service_pb2 import CapacityLease


@dataclass(frozen=True, slots=True)
class Lease:
    """The shard may have ``units`` assigned to the session, in all, until ``expires_at``."""

    broker_id: str
    session_id: str
    units: int
    expires_at: float  # Monotonic seconds.


class LeaseTable:
    """The leases of one shard as the cluster manager last stated them."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def __repr__(self) -> str:
        return f"<LeaseTable sessions={len(self._leases)} units={self.units_leased}>"

    @property
    def units_leased(self) -> int:
        return sum(lease.units for lease in self._leases.values())

    def session_ids(self) -> tuple[str, ...]:
        return tuple(self._leases)

    def lease(self, session_id: str, now: float) -> Lease | None:
        """Return the lease on a session unless it has expired."""
        lease = self._leases.get(session_id)
        return lease if lease is not None and now < lease.expires_at else None

    def replace(self, leases: Iterable[CapacityLease], asked_at: float) -> None:
        """Take over an answer of the cluster manager: all leases of the shard.

        Their time counts from ``asked_at``, when the request left, so they end here first.
        """
        self._leases = {
            lease.session_id: Lease(
                lease.broker_id, lease.session_id, lease.units, asked_at + lease.ttl_ms / 1000
            )
            for lease in leases
        }

    def drop(self, session_id: str) -> None:
        """Forget the lease on a session that ended."""
        self._leases.pop(session_id, None)

    def renew_at(self, asked_at: float) -> float | None:
        """Return when to renew: a third of the shortest time left after ``asked_at`` on."""
        if not self._leases:
            return None
        soonest = min(lease.expires_at for lease in self._leases.values())
        return asked_at + max(0.0, soonest - asked_at) / 3
