"""Policies: routes each request to the home shard of its object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discovery.ports import Shards
from discovery.service.admin.capacity_shares import CapacityShares
from discovery.service.admin.deadline import Deadline
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.shadow_lists import ShadowLists
from discovery.service.counters import DiscoveryCounters
from nextgen.client.wire.policies import policies_from_proto, policies_to_proto
from nextgen.kernel.errors import Definite, InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, PolicyLevel, check_policies, merge
from nextgen.kernel.routing.names import InvalidName, parse_namespace, parse_tenant, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
    Namespace,
    Tenant,
    Topic,
)
from protos.nextgen.v1.policies_pb2 import Policies

_Holder = Tenant | Namespace | Topic


@dataclass(frozen=True, slots=True)
class PolicyHolder:
    """A tenant, namespace or topic. ``name`` is canonical, ``routing_key`` gives its home shard."""

    kind: Kind
    name: str
    routing_key: str


class PoliciesService:
    """Sets and reads policies. Every method raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline.
    """

    def __init__(
        self,
        shards: Shards,
        inventory: InventoryService,
        counters: DiscoveryCounters,
        shares: CapacityShares,
    ) -> None:
        self._shards = shards
        self._inventory = inventory
        self._counters = counters
        self._shares = shares
        self._shadow_lists = ShadowLists(shards)

    async def set_policies(
        self, request: pb.SetPoliciesRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Replace all policies of an object; empty ones clear them.

        Raises:
            Refused: A rule rejected them, a tenant's share of capacity does not fit, or a topic is
                listed as a shadow that is none of this source.
            MetadataError: As of ``InventoryService.execute`` and ``CapacityShares.grant``.
        """
        holder = holder_of(request.name)
        body = shard_pb.SetPolicies(
            kind=holder.kind,
            name=holder.name,
            policies=request.policies if request.HasField("policies") else None,
            expected_version=request.expected_version,
            expects_none=request.expects_none,
        )
        command = shard_pb.Command(command_id=request.command_id, set_policies=body)
        if holder.kind == KIND_TOPIC and request.policies.shadow_topics:
            deadline = Deadline(timeout_ms)
            await self._check_shadows(holder, request.policies, deadline)
            timeout_ms = deadline.remaining_ms()
        if holder.kind != KIND_TENANT or not request.policies.capacity_share_percent:
            return await self._inventory.execute(holder.routing_key, command, request, timeout_ms)
        return await self._set_share(holder, command, request, Deadline(timeout_ms))

    async def _check_shadows(
        self, holder: PolicyHolder, policies: Policies, deadline: Deadline
    ) -> None:
        """Check the topics that are newly listed: one that is gone does not hinder other changes.

        Raises:
            Refused: NOT_ALLOWED, LIMIT_EXCEEDED; NOT_FOUND: there is no such source.
        """
        refusal = check_policies(policies_from_proto(policies), PolicyLevel.TOPIC)
        if refusal is not None:
            raise Refused(refusal.code, refusal.message)
        found = await self._read(holder, pb.GetPoliciesResponse(), deadline.remaining_ms())
        listed = set(found.policies.shadow_topics)
        new = [name for name in policies.shadow_topics if name not in listed]
        await self._shadow_lists.check(holder.name, new, deadline)

    async def _set_share(
        self,
        holder: PolicyHolder,
        command: shard_pb.Command,
        request: pb.SetPoliciesRequest,
        deadline: Deadline,
    ) -> pb.WriteResponse:
        """Set policies with a share, at the version for which the share was granted.

        So a concurrent change of the same policies causes a VERSION_MISMATCH.
        """
        percent = request.policies.capacity_share_percent
        is_conditional = request.expects_none or request.expected_version
        expected_version = request.expected_version if is_conditional else None
        grant = await self._shares.grant(holder.name, percent, deadline, expected_version)
        body = command.set_policies
        body.expected_version, body.expects_none = grant.version, not grant.version
        try:
            return await self._inventory.execute(
                holder.routing_key, command, request, deadline.remaining_ms()
            )
        except Definite:
            await self._shares.give_back(grant, deadline)
            raise

    async def get_policies(
        self, request: pb.GetPoliciesRequest, timeout_ms: int
    ) -> pb.GetPoliciesResponse:
        """Return an object's policies; ``merged``: with those that it inherits.

        The objects are read one after the other, its own last: each as of its own moment.

        Raises:
            Refused: NOT_FOUND, there is no such object.
        """
        holder = holder_of(request.name)
        response = pb.GetPoliciesResponse()
        above = [
            policies_from_proto((await self._read(each, response, timeout_ms)).policies)
            for each in (_above(holder) if request.merged else ())
        ]
        found = await self._read(holder, response, timeout_ms)
        if found.HasField("policies"):
            response.policies.CopyFrom(found.policies)
        response.version = found.policies_version
        if request.merged:
            said = (*above, policies_from_proto(found.policies), NO_POLICIES, NO_POLICIES)
            merged = merge(said[0], said[1], said[2])
            response.merged.CopyFrom(policies_to_proto(merged))
        return response

    async def _read(
        self, holder: PolicyHolder, response: pb.GetPoliciesResponse, timeout_ms: int
    ) -> _Holder:
        self._counters.reads += 1
        names = [shard_pb.ObjectName(kind=holder.kind, name=holder.name)]
        request = shard_pb.ShardRequest(get=shard_pb.GetRequest(names=names))
        answer = await self._shards.call_key(holder.routing_key, request, timeout_ms=timeout_ms)
        value = answer.get.items[0].WhichOneof("value") if answer.get.items else None
        if value is None:
            raise Refused(RejectionCode.NOT_FOUND, f"{holder.name} does not exist")
        response.shard_id, response.position = request.shard_id, answer.position
        found: _Holder = getattr(answer.get.items[0], value)
        return found


def holder_of(name: str) -> PolicyHolder:
    """Return the object that ``name`` names: without a slash a tenant, with one a namespace, else a
    topic.

    Raises:
        InvalidRequest: It is malformed, or the name of a partition.
    """
    try:
        if "/" not in name:
            tenant = parse_tenant(name)
            return PolicyHolder(KIND_TENANT, tenant, tenant)
        if name.count("/") == 1:
            namespace = parse_namespace(name).text
            return PolicyHolder(KIND_NAMESPACE, namespace, namespace)
        topic = parse_topic(name)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
    if topic.partition is not None:
        raise InvalidRequest(f"{topic.text} is a partition; policies are set for the whole topic")
    return PolicyHolder(KIND_TOPIC, topic.base_text, topic.routing_key)


def _above(holder: PolicyHolder) -> Sequence[PolicyHolder]:
    if holder.kind == KIND_TENANT:
        return ()
    if holder.kind == KIND_NAMESPACE:
        return (holder_of(parse_namespace(holder.name).tenant),)
    topic = parse_topic(holder.name)
    return (holder_of(topic.tenant), holder_of(topic.namespace_text))
