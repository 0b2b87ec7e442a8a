"""Tenants, namespaces and topics: routes each request to the shards of its names."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from discovery.domain.topic_rename import parse_new_name
from discovery.ports import Directory, Shards
from discovery.service.admin.deadline import all_written
from discovery.service.admin.grown_topics import GrownTopics
from discovery.service.admin.positions import check_issued, issued_at
from discovery.service.admin.topic_deletion import Owners, TopicDeletion
from discovery.service.admin.write_turns import SENT_BOUNDS, WriteTurns
from discovery.service.counters import DiscoveryCounters
from discovery.wire import (
    check_accepted,
    check_command_id,
    parse_name,
    parsed_topics,
)
from nextgen.client.routing.shard_calls import send_grouped
from nextgen.client.routing.topic_creation import Created
from nextgen.client.routing.write_admission import WriteBounds
from nextgen.client.wire.command_ids import derived_command_id
from nextgen.kernel.errors import (
    InvalidRequest,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES, SHARDS_MAX, TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    TopicName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
    Topic,
    UnitAssignment,
)
from protos.nextgen.v1.layouts_pb2 import ScalableTopic

Answer = TypeVar("Answer")
Write = (
    pb.CreateTenantRequest
    | pb.CreateNamespaceRequest
    | pb.SetPropertiesRequest
    | pb.SetPoliciesRequest
    | pb.DeleteRequest
    | pb.RenameTopicRequest
    | pb.UpdatePartitionsRequest
    | pb.CreateTopicsRequest
    | pb.UpdateLayoutRequest
    | pb.ScalableSubscriptionRequest
)

_IN_DEFAULT_NAMESPACE = f"://{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}/"


class InventoryService:
    """Carries out public writes and reads. Every method raises ``MetadataError`` kinds only.

    ``timeout_ms`` is the time until the caller's deadline.
    """

    def __init__(
        self,
        shards: Shards,
        directory: Directory,
        counters: DiscoveryCounters,
        make_default_namespace: Callable[[], Awaitable[None]],
        created: Created,
        write_bounds: WriteBounds = SENT_BOUNDS,
        owners: Owners | None = None,
    ) -> None:
        """``owners`` are asked before a topic of theirs is deleted. Without them a topic that was
        ever served cannot be deleted."""
        self._shards = shards
        self._directory = directory
        self._counters = counters
        self._make_default_namespace = make_default_namespace
        self._created = created
        self._turns = WriteTurns(write_bounds)
        self._deletion = TopicDeletion(shards, owners)
        self._grown = GrownTopics(shards, owners, created)

    # Tenants ----------------------------------------------------------------------------------

    async def create_tenant(
        self, request: pb.CreateTenantRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_tenant, request.name)
        body = shard_pb.CreateTenant(name=name, properties=request.properties)
        command = shard_pb.Command(command_id=request.command_id, create_tenant=body)
        return await self.execute(name, command, request, timeout_ms)

    async def set_tenant_properties(
        self, request: pb.SetPropertiesRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_tenant, request.name)
        body = shard_pb.SetTenantProperties(
            name=name, properties=request.properties, expected_version=request.expected_version
        )
        command = shard_pb.Command(command_id=request.command_id, set_tenant_properties=body)
        return await self.execute(name, command, request, timeout_ms)

    async def delete_tenant(self, request: pb.DeleteRequest, timeout_ms: int) -> pb.WriteResponse:
        name = parse_name(parse_tenant, request.name)
        body = shard_pb.DeleteTenant(name=name)
        command = shard_pb.Command(command_id=request.command_id, delete_tenant=body)
        return await self.execute(name, command, request, timeout_ms)

    async def get_tenant(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        name = parse_name(parse_tenant, request.name)
        return await self._get(KIND_TENANT, name, name, request.min_position, timeout_ms)

    # Namespaces -------------------------------------------------------------------------------

    async def create_namespace(
        self, request: pb.CreateNamespaceRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_namespace, request.name).text
        body = shard_pb.CreateNamespace(
            name=name,
            properties=request.properties,
            policies=request.policies if request.HasField("policies") else None,
        )
        command = shard_pb.Command(command_id=request.command_id, create_namespace=body)
        return await self.execute(name, command, request, timeout_ms)

    async def set_namespace_properties(
        self, request: pb.SetPropertiesRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_namespace, request.name).text
        body = shard_pb.SetNamespaceProperties(
            name=name, properties=request.properties, expected_version=request.expected_version
        )
        command = shard_pb.Command(command_id=request.command_id, set_namespace_properties=body)
        return await self.execute(name, command, request, timeout_ms)

    async def delete_namespace(
        self, request: pb.DeleteRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_namespace, request.name).text
        body = shard_pb.DeleteNamespace(name=name)
        command = shard_pb.Command(command_id=request.command_id, delete_namespace=body)
        return await self.execute(name, command, request, timeout_ms)

    async def get_namespace(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        name = parse_name(parse_namespace, request.name).text
        return await self._get(KIND_NAMESPACE, name, name, request.min_position, timeout_ms)

    # Topics -----------------------------------------------------------------------------------

    async def create_topics(
        self, request: pb.CreateTopicsRequest, timeout_ms: int
    ) -> pb.CreateTopicsResponse:
        """Create topics in all their shards concurrently; each topic has an outcome of its own.

        If a shard cannot be reached the whole request fails. The caller repeats it with the same
        command id, and the other shards return their first outcomes again. The first topic of
        ``public/default`` creates that namespace, as in a fresh Pulsar.
        """
        count = len(request.topics)
        if not 1 <= count <= TOPICS_PER_CREATE_MAX:
            raise InvalidRequest(
                f"a create has {count} topics, 1 to {TOPICS_PER_CREATE_MAX} are allowed"
            )
        command_id = _command_id(request.command_id)
        outcomes, routing_keys = parsed_topics(request.topics)
        if any(_IN_DEFAULT_NAMESPACE in topic.name for topic in request.topics):
            await self._make_default_namespace()
        # Before one request is sent: without a position of one of its shards a command is sent to
        # none, and the client may issue it again.
        check_issued(
            request.issued, {self._shards.shard_of_key(key) for key in routing_keys.values()}
        )
        response = pb.CreateTopicsResponse(shard_map_version=self._version)
        positions: dict[int, int] = {}

        async def send(shard_id: int, at_shard: list[int]) -> Sequence[shard_pb.TopicOutcome]:
            topics = [request.topics[place] for place in at_shard]
            part = self._create_request(shard_id, command_id, topics, request)
            result = await self._create_in(part, timeout_ms)
            positions[shard_id] = max(positions.get(shard_id, 0), result.position)
            return _topic_outcomes(result, len(at_shard))

        outcomes |= await send_grouped(self._shards, routing_keys, send, joined=all_written)
        for shard_id, position in positions.items():
            response.positions.add(shard_id=shard_id, position=position)
        response.topics.extend(outcomes[place] for place in range(count))
        self._counters.writes += 1
        created = sum(not outcome.rejection_code for outcome in response.topics)
        self._counters.topics_created += created
        return response

    async def set_topic_properties(
        self, request: pb.SetPropertiesRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        name = parse_name(parse_topic, request.name)
        body = shard_pb.SetTopicProperties(
            name=name.text,
            properties=request.properties,
            expected_version=request.expected_version,
        )
        command = shard_pb.Command(command_id=request.command_id, set_topic_properties=body)
        return await self.execute(name.routing_key, command, request, timeout_ms)

    async def update_partitions(
        self, request: pb.UpdatePartitionsRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Give a partitioned topic more partitions, with the subscriptions of its first one.

        So do its shadows get them, with their own subscriptions.
        With its present number no partition is added, and all get the subscriptions that they are
        missing: what an earlier request was broken off at.

        Raises:
            Refused: NOT_FOUND; NOT_PARTITIONED; FEWER_PARTITIONS: it has more already;
                LIMIT_EXCEEDED: 0, or above ``PARTITIONS_PER_TOPIC_MAX``; INVALID_NAME: a partition.
            ConnectionLost: It may have its partitions, and not all subscriptions on them.
        """
        name = parse_name(parse_topic, request.name)
        present = await self._partitions_of(name, timeout_ms)
        body = shard_pb.GrowTopic(name=name.text, partitions=request.partitions)
        command = shard_pb.Command(command_id=request.command_id, grow_topic=body)
        response, result = await self._execute(name.routing_key, command, request, timeout_ms)
        # Before the caller is answered: it may look a new partition up next, here.
        self._created(response.shard_id, response.position, (name.base_text,))
        is_repeated = present == request.partitions
        new = range(0 if is_repeated else present, request.partitions)
        shards = self._directory.view.shard_ids if result.has_shadows else ()
        await self._grown.copy_all(name, new, shards, timeout_ms)
        return response

    async def complete_partitions(self, name: TopicName, timeout_ms: int) -> None:
        """Give all partitions of a topic the durable subscriptions of the first one.

        Raises:
            ConnectionLost: Some partitions may have got them: repeat it.
        """
        partitions = await self._partitions_of(name, timeout_ms)
        await self._grown.copy_subscriptions(name, range(partitions), timeout_ms)

    async def _partitions_of(self, name: TopicName, timeout_ms: int) -> int:
        """Return a topic's partitions, 0 also if there is no such topic."""
        found = await self._get(KIND_TOPIC, name.base_text, name.routing_key, 0, timeout_ms)
        return found.item.topic.partitions

    async def delete_topic(
        self,
        request: pb.DeleteRequest,
        timeout_ms: int,
        form: shard_pb.TopicForm = shard_pb.TOPIC_FORM_ANY,
    ) -> pb.WriteResponse:
        """Delete a topic with all its partitions, if it has this ``form``.

        Raises:
            Refused: NOT_FOUND; IN_USE: it has producers, consumers or subscriptions, and the
                request is not forced; PARTITIONED, NOT_PARTITIONED: it has the other form;
                INVALID_NAME: a partition.
        """
        name = parse_name(parse_topic, request.name)
        command_id = _command_id(request.command_id)

        async def attempt(body: shard_pb.DeleteTopic) -> pb.WriteResponse:
            # One id for all: a shard remembers the outcome of the last attempt alone.
            command = shard_pb.Command(command_id=command_id, delete_topic=body)
            return await self.execute(name.routing_key, command, request, timeout_ms)

        return await self._deletion.delete(
            name, force=request.force, form=form, attempt=attempt, timeout_ms=timeout_ms
        )

    async def rename_topic(
        self, request: pb.RenameTopicRequest, timeout_ms: int
    ) -> pb.WriteResponse:
        """Give a topic another name. Its shard reserves the name at the shard that has it.

        Raises:
            Refused: NOT_FOUND; ALREADY_EXISTS: the new name is taken, or answers for another topic;
                NOT_ALLOWED: topics of this kind keep their names; PARENT_NOT_FOUND: there is no
                such namespace; LIMIT_EXCEEDED; INVALID_NAME: a partition.
            Indefinite: It may be renamed: repeat it with the same command id.
        """
        name = parse_name(parse_topic, request.name)
        new_name = parse_name(partial(parse_new_name, name), request.new_name)
        body = shard_pb.RenameTopic(name=name.text, new_name=new_name.text)
        if request.HasField("grace_ms"):
            body.grace_ms = request.grace_ms
        command = shard_pb.Command(command_id=request.command_id, rename_topic=body)
        response = await self.execute(name.routing_key, command, request, timeout_ms)
        # Before the caller is answered: what is remembered of either name is out of date.
        names = name.base_text, new_name.base_text
        self._created(response.shard_id, response.position, names)
        return response

    async def get_topic(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        name = parse_name(parse_topic, request.name)
        return await self._get(
            KIND_TOPIC, name.text, name.routing_key, request.min_position, timeout_ms
        )

    async def get_scalable_topic(
        self, request: pb.GetObjectRequest, timeout_ms: int
    ) -> pb.GetObjectResponse:
        name = parse_name(parse_topic, request.name)
        return await self._get(
            KIND_SCALABLE_TOPIC, name.text, name.routing_key, request.min_position, timeout_ms
        )

    async def scalable_topic(self, name: TopicName, timeout_ms: int) -> tuple[Topic, ScalableTopic]:
        """Return a scalable topic, and its layout at the same position. Linearizable.

        Raises:
            Refused: NOT_FOUND, there is none of this name.
        """
        kinds = (KIND_TOPIC, KIND_SCALABLE_TOPIC)
        wanted = [shard_pb.ObjectName(kind=kind, name=name.base_text) for kind in kinds]
        request = shard_pb.ShardRequest(get=shard_pb.GetRequest(names=wanted))
        self._counters.reads += 1
        response = await self._shards.call_key(name.routing_key, request, timeout_ms=timeout_ms)
        items = response.get.items
        if len(items) < len(kinds) or not items[1].HasField("scalable_topic"):
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.base_text} does not exist")
        return items[0].topic, items[1].scalable_topic

    async def units(self, name: TopicName, timeout_ms: int) -> Sequence[UnitAssignment]:
        """Return the units of a topic that were ever assigned; without a broker id it has none."""
        return (await self._deletion.units(name, timeout_ms)).units

    # ------------------------------------------------------------------------------------------

    @property
    def _version(self) -> int:
        return self._directory.view.shard_map_version

    async def execute(
        self,
        routing_key: str,
        command: shard_pb.Command,
        write: Write,
        timeout_ms: int,
    ) -> pb.WriteResponse:
        """Carry out ``command`` of ``write`` at the shard of ``routing_key``.

        It gets an id if it has none.

        Raises:
            Refused: A rule rejected the command. MetadataError: No answer came; an effective write
            may be committed nevertheless.
        """
        response, _ = await self._execute(routing_key, command, write, timeout_ms)
        return response

    async def _execute(
        self,
        routing_key: str,
        command: shard_pb.Command,
        write: Write,
        timeout_ms: int,
    ) -> tuple[pb.WriteResponse, shard_pb.CommandResult]:
        command.command_id = _command_id(command.command_id)
        shard_id = self._shards.shard_of_key(routing_key)
        check_issued(write.issued, {shard_id})
        request = self._request(shard_id, command, write)
        response = await self._shards.call_key(routing_key, request, timeout_ms=timeout_ms)
        self._counters.writes += 1
        result = _single_result(response)
        try:
            check_accepted(result)
        except Refused:
            self._counters.writes_refused += 1
            raise
        written = pb.WriteResponse(
            id=result.id,
            version=result.version,
            shard_id=request.shard_id,
            position=result.position,
            shard_map_version=self._version,
        )
        return written, result

    def _create_request(
        self,
        shard_id: int,
        command_id: bytes,
        topics: Sequence[shard_pb.TopicSpec],
        write: Write,
    ) -> shard_pb.ShardRequest:
        command = shard_pb.Command(
            command_id=derived_command_id(command_id, shard_id),
            batch_id=command_id,
            create_topics=shard_pb.CreateTopics(topics=topics),
        )
        return self._request(shard_id, command, write)

    async def _create_in(
        self, request: shard_pb.ShardRequest, timeout_ms: int
    ) -> shard_pb.CommandResult:
        shard_id = request.shard_id
        topics = request.execute.commands[0].create_topics.topics
        timeout_ms = await self._turns.enter(shard_id, topics, timeout_ms)
        try:
            response = await self._shards.call(shard_id, request, timeout_ms=timeout_ms)
        finally:
            self._turns.leave(shard_id, topics)
        result = _single_result(response)
        self._created(shard_id, result.position, (topic.name for topic in topics))
        return result

    def _request(
        self, shard_id: int, command: shard_pb.Command, write: Write
    ) -> shard_pb.ShardRequest:
        """Return ``command`` for ``shard_id``, with the positions at which the client issued it.

        Raises:
            InvalidRequest: The client names positions of more shards than there can be.
        """
        execute = shard_pb.ExecuteRequest(commands=[command], consistency=write.consistency)
        if not write.issued:
            # The router uses positions known here: see GetPositionsRequest for their guarantee.
            self._counters.writes_without_positions += 1
        else:
            if len(write.issued) > SHARDS_MAX:
                raise InvalidRequest(f"a command names positions of {len(write.issued)} shards")
            for each in write.issued:
                execute.issued.add(shard_id=each.shard_id, position=each.position)
            execute.issued_position = issued_at(write.issued).get(shard_id, 0)
        return shard_pb.ShardRequest(shard_id=shard_id, execute=execute)

    async def _get(
        self, kind: Kind, name: str, routing_key: str, min_position: int, timeout_ms: int
    ) -> pb.GetObjectResponse:
        self._counters.reads += 1
        request = shard_pb.ShardRequest(
            get=shard_pb.GetRequest(
                names=[shard_pb.ObjectName(kind=kind, name=name)], min_position=min_position
            )
        )
        if self._directory.view.is_moved(routing_key):
            # The position is of the name's own shard, the topic is in another one.
            request.get.min_position = min_position = 0
        if min_position:
            shard_id = self._shards.shard_of_key(routing_key)
            response = await self._shards.call_any(shard_id, request, timeout_ms=timeout_ms)
        else:
            response = await self._shards.call_key(routing_key, request, timeout_ms=timeout_ms)
        items = response.get.items
        item = items[0] if items else Item(kind=kind, name=name)
        return pb.GetObjectResponse(
            item=item, shard_id=request.shard_id, position=response.position
        )


def _single_result(response: shard_pb.ShardResponse) -> shard_pb.CommandResult:
    if len(response.execute.results) != 1:
        raise Unavailable("a shard answered a command without a result")
    return response.execute.results[0]


def _topic_outcomes(result: shard_pb.CommandResult, count: int) -> Sequence[shard_pb.TopicOutcome]:
    """Return the outcome of each topic; a command that was refused as a whole refused each."""
    if result.rejection_code:
        refused = shard_pb.TopicOutcome(
            rejection_code=result.rejection_code, message=result.message
        )
        return [refused] * count
    return result.topics


def _command_id(given: bytes) -> bytes:
    check_command_id(given)
    return given or secrets.token_bytes(COMMAND_ID_BYTES)
