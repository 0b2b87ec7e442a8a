"""Leases capacity to shards: gets missing grants, decides, commits the events and answers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import structlog

from cluster_manager.domain.block_policy import units_to_keep, units_to_offer
from cluster_manager.domain.broker_directory import Broker
from cluster_manager.domain.capacity_ledger import (
    Command,
    ExpireLease,
    LeaseCapacity,
    RecordGrant,
    ReturnUnits,
)
from cluster_manager.domain.capacity_ledger import decide as decide_ledger
from cluster_manager.domain.cluster import ClusterEvent, ClusterState, fold_events
from cluster_manager.ports import Clock
from cluster_manager.service.grant_allocator import GrantAllocator, Grants
from cluster_manager.service.leader_term import LeaderTerm
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import BROKERS_MAX, CAPACITY_LEASE_TTL_MS, STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import LEASE_EXPIRY_MARGIN_MS
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

RENEWED_LEFT_MS = CAPACITY_LEASE_TTL_MS * 2 // 3
"""A lease with more time left than this is not recorded again just for a later end. Shards renew at
a third of the time-to-live, and their requests in between cost no event."""

SILENCE_MS = CAPACITY_LEASE_TTL_MS + LEASE_EXPIRY_MARGIN_MS
"""After this long without a request, no leader of the shard still uses a lease."""

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseDecision:
    """The decision on one request: events for the log, and the state after them."""

    events: tuple[ClusterEvent, ...]
    state: ClusterState
    refused: tuple[str, ...] = ()
    """Reasons for which returns were refused."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Shards without a request for ``SILENCE_MS``, and the last reported use of every shard.

    ``units_used`` has units by shard and session id; the ledger may have earlier numbers.
    """

    shard_ids: Set[int] = frozenset()
    units_used: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


class _Decider:
    """Decides commands one after another. ``events`` and ``state`` are the result."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.events: list[ClusterEvent] = []

    def carry_out(self, command: Command) -> Rejected | None:
        decision = decide_ledger(self.state.ledger, command)
        if isinstance(decision, Rejected):
            return decision
        self.events.extend(decision.events)
        self.state = fold_events(self.state, decision.events)
        return None


def decide_leases(
    state: ClusterState,
    request: cluster_pb.LeaseCapacityRequest,
    grants: Grants,
    now_ms: int,
    silence: Silence = Silence(),
) -> LeaseDecision:
    """Decide ``request``, with the new ``grants``. Pure."""
    decider = _Decider(state)
    for (broker_id, session_id), units in grants.items():
        # A refused grant changes nothing: the session ended during the request.
        decider.carry_out(RecordGrant(broker_id, session_id, units))
    refused = _take_returns(decider, request)
    _expire(decider, silence)
    _offer(decider, request, now_ms)
    return LeaseDecision(tuple(decider.events), decider.state, refused)


def _take_returns(decider: _Decider, request: cluster_pb.LeaseCapacityRequest) -> tuple[str, ...]:
    refused: list[str] = []
    for each in request.returns:
        rejected = decider.carry_out(
            ReturnUnits(
                each.broker_id,
                each.session_id,
                request.shard_id,
                each.units,
                each.version,
                request.term,
            )
        )
        if rejected is not None:
            refused.append(rejected.message)
    return tuple(refused)


def _expire(decider: _Decider, silence: Silence) -> None:
    for broker in decider.state.directory.live():
        account = decider.state.ledger.live_account(broker.broker_id, broker.session_id)
        leases = {} if account is None else account.leases
        for shard_id in sorted(silence.shard_ids & leases.keys()):
            used = silence.units_used.get(shard_id, {}).get(broker.session_id, 0)
            decider.carry_out(ExpireLease(broker.broker_id, broker.session_id, shard_id, used))


def _offer(decider: _Decider, request: cluster_pb.LeaseCapacityRequest, now_ms: int) -> None:
    state = decider.state
    live = {broker.broker_id: broker for broker in state.directory.live()}
    used = _units_used(live, request)
    offers = units_to_offer(
        state.ledger,
        brokers=tuple(live.values()),
        shard_id=request.shard_id,
        shards=len(state.shard_map.shard_ids) if state.shard_map else 1,
        used=used,
        units_wanted=request.units_wanted,
        closed={each.broker_id for each in live.values() if _is_closed(each, now_ms)},
    )
    for broker_id, units in offers.items():
        lease = state.ledger.lease_of(broker_id, request.shard_id)
        if (
            lease is not None
            and (lease.units, lease.term) == (units, request.term)
            and lease.expires_at_ms - now_ms > RENEWED_LEFT_MS
        ):
            continue
        decider.carry_out(
            LeaseCapacity(
                broker_id=broker_id,
                session_id=live[broker_id].session_id,
                shard_id=request.shard_id,
                units=units,
                expires_at_ms=now_ms + CAPACITY_LEASE_TTL_MS,
                term=request.term,
                units_used=used.get(broker_id, 0),
            )
        )


def leases_of(
    state: ClusterState,
    shard_id: int,
    now_ms: int,
    units_used: Mapping[int, Mapping[str, int]],
) -> list[cluster_pb.CapacityLease]:
    """Return all present leases of a shard, with the time that they have left.

    ``units_used`` has the last reports, as in ``Silence``.
    """
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
                version=lease.version,
                units_to_keep=_units_to_keep(state, broker, units_used).get(shard_id),
            )
        )
    return leases


def _units_to_keep(
    state: ClusterState, broker: Broker, units_used: Mapping[int, Mapping[str, int]]
) -> dict[int, int]:
    reported = {
        shard_id: used[broker.session_id]
        for shard_id, used in units_used.items()
        if broker.session_id in used
    }
    return units_to_keep(state.ledger.accounts[broker.broker_id], reported)


class LeaseAllocator:
    """Answers ``LeaseCapacity`` for one term of leadership."""

    def __init__(self, leader_term: LeaderTerm, grants: GrantAllocator, clock: Clock) -> None:
        self._leader_term = leader_term
        self._grants = grants
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._heard_ms: dict[int, int] = {}
        self._units_used: dict[int, dict[str, int]] = {}

    async def lease(
        self, request: cluster_pb.LeaseCapacityRequest
    ) -> cluster_pb.LeaseCapacityResponse:
        """Return the shard's leases once they are committed.

        The lease of a broker whose manager cannot be reached stays as it is. If some returns are
        refused, the answer has the reasons, and the rest of the request is done.

        Raises:
            InvalidRequest: There is no such shard or term, or the request names too many brokers.
            Refused: The sender does not lead the shard any more.
            NotLeader, Overloaded, ProposalLost: See ``ReplicatedLog.propose``.
        """
        self._check(request)
        grants = await self._grants.missing_grants()
        # A later leader of the shard may have got its answer during the await.
        self._check(request)
        # From here to propose() there is no await.
        now_ms = self._clock.unix_ms()
        self._heard_ms[request.shard_id] = self._clock.monotonic_ms()
        self._units_used[request.shard_id] = {
            use.session_id: use.units_used for use in request.uses
        }
        decision = decide_leases(
            self._leader_term.pending, request, grants, now_ms, self._silence()
        )
        if decision.events:
            await self._leader_term.propose(decision.events)
        else:
            # The answer may depend on events that are proposed but not committed yet.
            await self._leader_term.confirm()
        for why in decision.refused:
            _logger.info("return refused", shard=request.shard_id, term=request.term, why=why)
        leases = leases_of(decision.state, request.shard_id, now_ms, self._units_used)
        return cluster_pb.LeaseCapacityResponse(leases=leases, refused=decision.refused)

    async def accounts(self) -> cluster_pb.GetCapacityResponse:
        """Return the committed ledger by broker id, linearizable.

        Raises:
            NotLeader, ProposalLost: Leadership moved.
        """
        await self._leader_term.confirm()
        ledger = self._leader_term.committed.ledger
        return cluster_pb.GetCapacityResponse(
            accounts=[
                cluster_pb.BrokerAccount(
                    broker_id=broker_id,
                    session_id=account.session_id,
                    is_live=account.is_live,
                    capacity_units=account.capacity_units,
                    granted_units=account.granted_units,
                    quota_units=ledger.quotas.get(broker_id),
                    leases=[
                        cluster_pb.ShardLease(
                            shard_id=shard_id,
                            units=lease.units,
                            units_used=self._used(shard_id, account.session_id, lease.units_used),
                            expires_at_ms=lease.expires_at_ms,
                            version=lease.version,
                        )
                        for shard_id, lease in sorted(account.leases.items())
                    ],
                )
                for broker_id, account in sorted(ledger.accounts.items())
            ]
        )

    def _used(self, shard_id: int, session_id: str, recorded: int) -> int:
        return self._units_used.get(shard_id, {}).get(session_id, recorded)

    def _silence(self) -> Silence:
        """Return the shards that sent no request for ``SILENCE_MS`` of this term."""
        now_ms = self._clock.monotonic_ms()
        shard_map = self._leader_term.committed.shard_map
        shard_ids = () if shard_map is None else shard_map.shard_ids
        silent = {
            shard_id
            for shard_id in shard_ids
            if now_ms - self._heard_ms.get(shard_id, self._began_ms) >= SILENCE_MS
        }
        return Silence(silent, self._units_used)

    def _check(self, request: cluster_pb.LeaseCapacityRequest) -> None:
        shard_map = self._leader_term.committed.shard_map
        if shard_map is None or request.shard_id not in shard_map.shard_ids:
            raise InvalidRequest(f"shard {request.shard_id} is not in the shard map")
        if max(len(request.uses), len(request.returns)) > BROKERS_MAX:
            raise InvalidRequest(f"a shard has leases of at most {BROKERS_MAX} brokers")
        if request.term > STORED_INTEGER_MAX:
            raise InvalidRequest(f"shard {request.shard_id} is led at no term {request.term}")
        answered_term = self._leader_term.pending.ledger.term_of(request.shard_id)
        if request.term < answered_term:
            raise Refused(
                RejectionCode.STALE_EPOCH,
                f"shard {request.shard_id} got its leases at term {answered_term}, "
                f"the request is of term {request.term}",
            )
        endpoint = self._leader_term.endpoints.get(request.shard_id)
        if endpoint is not None and request.term < endpoint.term:
            raise Refused(
                RejectionCode.STALE_EPOCH,
                f"shard {request.shard_id} is led at term {endpoint.term} by {endpoint.node_id}, "
                f"the request is of term {request.term}",
            )


def _is_closed(broker: Broker, now_ms: int) -> bool:
    return broker.draining or broker.quarantined_until_ms > now_ms


def _units_used(
    live: dict[str, Broker], request: cluster_pb.LeaseCapacityRequest
) -> dict[str, int]:
    """Return the units in use by broker; reports of ended sessions are ignored."""
    return {
        use.broker_id: use.units_used
        for use in request.uses
        if use.broker_id in live and live[use.broker_id].session_id == use.session_id
    }
