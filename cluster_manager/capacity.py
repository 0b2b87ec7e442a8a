"""Leasing capacity: makes sure it is granted, then decides, records and answers."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.domain.block_policy import units_to_offer
from cluster_manager.domain.broker_directory import Broker
from cluster_manager.domain.capacity_ledger import LeaseCapacity, RecordGrant
from cluster_manager.domain.capacity_ledger import decide as decide_ledger
from cluster_manager.domain.cluster import ClusterEvent, ClusterState, fold_events
from cluster_manager.grants import GrantDesk, Grants
from cluster_manager.leader_term import LeaderTerm
from cluster_manager.ports import Clock
from nextgen.kernel.decider import Accepted, RejectionCode
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.limits import CAPACITY_LEASE_TTL_MS
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

RENEWED_LEFT_MS = CAPACITY_LEASE_TTL_MS * 2 // 3
"""A lease with more life left than this is not written anew just for a later end: shards renew at
a third of the time-to-live, and several of their requests in between cost no event."""


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    """What one request leaves behind: events for the log, and the state they lead to."""

    events: tuple[ClusterEvent, ...]
    state: ClusterState


def decide_leases(
    state: ClusterState, request: cluster_pb.LeaseCapacityRequest, grants: Grants, now_ms: int
) -> LeaseDecision:
    """Return the decision on ``request`` after ``grants`` were given. Pure."""
    events: list[ClusterEvent] = []

    def carry_out(command: RecordGrant | LeaseCapacity) -> None:
        nonlocal state
        decision = decide_ledger(state.ledger, command)
        # A refusal leaves that broker as it was: its session ended while we asked.
        if isinstance(decision, Accepted):
            events.extend(decision.events)
            state = fold_events(state, decision.events)

    for (broker_id, session_id), units in grants.items():
        carry_out(RecordGrant(broker_id, session_id, units))
    live = {broker.broker_id: broker for broker in state.directory.live()}
    offers = units_to_offer(
        state.ledger,
        brokers=tuple(live.values()),
        shard_id=request.shard_id,
        shards=len(state.shard_map.shard_ids) if state.shard_map else 1,
        used=_units_used(live, request),
        units_wanted=request.units_wanted,
    )
    for broker_id, units in offers.items():
        lease = state.ledger.lease_of(broker_id, request.shard_id)
        if lease and lease.units == units and lease.expires_at_ms - now_ms > RENEWED_LEFT_MS:
            continue
        carry_out(
            LeaseCapacity(
                broker_id=broker_id,
                session_id=live[broker_id].session_id,
                shard_id=request.shard_id,
                units=units,
                expires_at_ms=now_ms + CAPACITY_LEASE_TTL_MS,
            )
        )
    return LeaseDecision(tuple(events), state)


def leases_of(state: ClusterState, shard_id: int, now_ms: int) -> cluster_pb.LeaseCapacityResponse:
    """Return all leases of a shard that have not ended, with the life they have left."""
    leases = []
    for broker in state.directory.live():
        lease = state.ledger.lease_of(broker.broker_id, shard_id)
        if lease is None or lease.expires_at_ms <= now_ms:
            continue
        leases.append(
            cluster_pb.CapacityLease(
                broker_id=broker.broker_id,
                session_id=broker.session_id,
                units=lease.units,
                ttl_ms=min(CAPACITY_LEASE_TTL_MS, lease.expires_at_ms - now_ms),
            )
        )
    return cluster_pb.LeaseCapacityResponse(leases=leases)


class CapacityDesk:
    """Answers ``LeaseCapacity`` for one term of leadership."""

    def __init__(self, leader_term: LeaderTerm, grants: GrantDesk, clock: Clock) -> None:
        self._leader_term = leader_term
        self._grants = grants
        self._clock = clock

    async def lease(
        self, request: cluster_pb.LeaseCapacityRequest
    ) -> cluster_pb.LeaseCapacityResponse:
        """Return the shard's leases once they are committed.

        A broker whose manager cannot be asked is left as it is; the others are answered.

        Raises:
            InvalidRequest: There is no such shard.
            Refused: The asker's leadership of the shard is over.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        self._check(request)
        grants = await self._grants.missing_grants()
        # From here to propose() there is no await.
        now_ms = self._clock.unix_ms()
        decision = decide_leases(self._leader_term.pending, request, grants, now_ms)
        if decision.events:
            await self._leader_term.propose(decision.events)
        else:
            # What is granted already may be on its way still, for somebody who went away.
            await self._leader_term.confirm()
        return leases_of(decision.state, request.shard_id, now_ms)

    def _check(self, request: cluster_pb.LeaseCapacityRequest) -> None:
        shard_map = self._leader_term.committed.shard_map
        if shard_map is None or request.shard_id not in shard_map.shard_ids:
            raise InvalidRequest(f"shard {request.shard_id} is not in the shard map")
        endpoint = self._leader_term.endpoints.get(request.shard_id)
        if endpoint is not None and request.term < endpoint.term:
            raise Refused(
                RejectionCode.STALE_EPOCH,
                f"shard {request.shard_id} is led at term {endpoint.term} by {endpoint.node_id}, "
                f"the request is of term {request.term}",
            )


def _units_used(
    live: dict[str, Broker], request: cluster_pb.LeaseCapacityRequest
) -> dict[str, int]:
    """Return the units in use by broker; what is said of sessions that ended counts nothing."""
    return {
        use.broker_id: use.units_used
        for use in request.uses
        if use.broker_id in live and live[use.broker_id].session_id == use.session_id
    }
