"""Inventories and assignments in dictionaries, behind the way to the shards.

The rules are those of the shards as far as a ``TopicDirectory`` can see them: parents must exist,
a name exists once, a partitioned topic is served by its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from nextgen.client.wire.policies import policies_from_proto
from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.governance.auto_creation import auto_creation
from nextgen.kernel.governance.policies import merge
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer
from protos.nextgen.v1.policies_pb2 import Policies

SHARDS = 3


class TopicWorld:
    """A ``Shards`` of three shards. Requests wait while ``released`` is clear."""

    def __init__(self) -> None:
        self.tenants: set[str] = set()
        self.namespaces: dict[str, dict[str, str]] = {}
        self.policies: dict[str, Policies] = {}
        """Of tenants and namespaces."""
        self.topics: dict[str, int] = {}
        self.brokers: dict[str, LookupAnswer] = {}
        self.requests: list[pb.ShardRequest] = []
        self.assigned: list[str] = []
        self.created: list[str] = []
        """Topics that were created by the policies of their namespaces."""
        self.error: MetadataError | None = None
        self.released = asyncio.Event()
        self.released.set()
        self.properties: dict[str, dict[str, str]] = {}
        self.objects_per_answer = 1_000
        """Objects that fit into an answer: a request for more is refused."""
        self.answer_url = "pulsar://broker-1:6650"
        self.broker_grpc = ""
        self.uses_topics = True
        """Whether shards create by policy what is to be used: earlier releases did not."""
        self.lists_names = True
        """Whether names are listed alone, where that is requested: earlier releases did not."""

    def add_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        self.tenants.add(name.split("/")[0])
        self.namespaces[name] = dict(properties or {})

    def add_topic(
        self, name: str, partitions: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        self.topics[name] = partitions
        self.properties[name] = dict(properties or {})

    def commands(self, body: str) -> list[pb.Command]:
        """Return the commands of one kind that were carried out."""
        return [
            command
            for request in self.requests
            for command in request.execute.commands
            if command.HasField(body)
        ]

    def shard_of_key(self, routing_key: str) -> int:
        return sum(routing_key.encode()) % SHARDS + 1

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse:
        sent = pb.ShardRequest()
        sent.CopyFrom(request)
        sent.shard_id = shard_id
        self.requests.append(sent)
        await self.released.wait()
        if self.error is not None:
            raise self.error
        response = pb.ShardResponse()
        if request.HasField("use_topics"):
            response.use_topics.topics.extend(map(self._used, self._names_to_use(request)))
        elif request.HasField("lookup"):
            response.lookup.answers.extend(map(self._looked_up, request.lookup.topics))
        elif request.HasField("get"):
            if len(request.get.names) > self.objects_per_answer:
                raise InvalidRequest("the answer is too large, ask for fewer names")
            response.get.items.extend(map(self._got, request.get.names))
        elif request.HasField("list"):
            self._list(shard_id, request.list, response.list)
        else:
            response.execute.results.extend(map(self._executed, request.execute.commands))
        return response

    def _names_to_use(self, request: pb.ShardRequest) -> Sequence[str]:
        if not self.uses_topics:
            raise InvalidRequest("a shard does not know requests of this kind (None)")
        return request.use_topics.names

    def _used(self, name: str) -> pb.TopicOutcome:
        namespace = parse_topic(name).namespace_text
        outcome = pb.TopicOutcome(topic_id="id")
        if name in self.topics:
            outcome.rejection_code = "ALREADY_EXISTS"
        elif namespace in self.namespaces:
            policies = merge(
                *(
                    policies_from_proto(self.policies.get(each, Policies()))
                    for each in (namespace.partition("/")[0], namespace)
                )
            )
            rule = auto_creation(self.namespaces[namespace], policies.auto_creation)
            if not rule.is_allowed:
                message = f"not created: {rule.problem or 'its policy forbids it'}"
                return pb.TopicOutcome(rejection_code="NOT_FOUND", message=message)
            self.topics[name] = 0 if name.startswith("topic://") else rule.partitions
            self.created.append(name)
        else:
            message = f"namespace {namespace} does not exist"
            return pb.TopicOutcome(rejection_code="PARENT_NOT_FOUND", message=message)
        outcome.partitions = self.topics[name]
        return outcome

    def _looked_up(self, text: str) -> LookupAnswer:
        name = parse_topic(text)
        count = self.topics.get(name.base_text)
        if count is None or (name.partition or 0) >= max(count, 1):
            return LookupAnswer(topic=text, rejection_code="NOT_FOUND", message="is not there")
        if count and name.partition is None:
            return LookupAnswer(
                topic=text, rejection_code="PARTITIONED", message="has partitions", partitions=count
            )
        self.assigned.append(text)
        return LookupAnswer(
            topic=text,
            broker_id="broker-1",
            broker_url=self.answer_url,
            broker_grpc=self.broker_grpc,
            session_id="s-1",
            topic_id="id",
            epoch=7,
        )

    def _got(self, name: pb.ObjectName) -> Item:
        item = Item(kind=name.kind, name=name.name)
        if name.name in self.topics:
            item.topic.name = name.name
            item.topic.partitions = self.topics[name.name]
        if name.name in self.namespaces:
            item.namespace.name = name.name
            item.namespace.properties.update(self.namespaces[name.name])
            item.namespace.policies.CopyFrom(self.policies.get(name.name, Policies()))
        if name.name in self.tenants:
            item.tenant.name = name.name
            item.tenant.policies.CopyFrom(self.policies.get(name.name, Policies()))
        return item

    def _list(self, shard_id: int, request: pb.ListRequest, response: pb.ListResponse) -> None:
        names = sorted(
            name
            for name in self.topics
            if parse_topic(name).namespace_text == request.parent
            and self.shard_of_key(parse_topic(name).routing_key) == shard_id
            and (not request.domain or name.startswith(f"{request.domain}://"))
            and name > request.after
            and parse_topic(name).local_name.startswith(request.prefix)
        )
        page = min(request.limit, 2)
        for name in names[:page]:
            if request.names_only and self.lists_names:
                response.names.append(name)
                response.partitions.append(self.topics[name])
            else:
                item = response.items.add(name=name)
                item.topic.partitions = self.topics[name]
                item.topic.properties.update(self.properties.get(name, {}))
        response.more_items = len(names) > page

    def _executed(self, command: pb.Command) -> pb.CommandResult:
        if command.HasField("create_tenant"):
            return _created(command.create_tenant.name, self.tenants)
        if command.HasField("create_namespace"):
            name = command.create_namespace.name
            if name.split("/")[0] not in self.tenants:
                return pb.CommandResult(rejection_code="PARENT_NOT_FOUND", message="no tenant")
            if name in self.namespaces:
                return pb.CommandResult(rejection_code="ALREADY_EXISTS")
            self.namespaces[name] = {}
            return pb.CommandResult()
        outcomes = [self._created_topic(spec) for spec in command.create_topics.topics]
        return pb.CommandResult(topics=outcomes)

    def _created_topic(self, spec: pb.TopicSpec) -> pb.TopicOutcome:
        if parse_topic(spec.name).namespace_text not in self.namespaces:
            return pb.TopicOutcome(rejection_code="PARENT_NOT_FOUND", message="no namespace")
        if spec.name in self.topics:
            return pb.TopicOutcome(rejection_code="ALREADY_EXISTS", message="is there")
        self.topics[spec.name] = spec.partitions
        return pb.TopicOutcome(topic_id="id")


def _created(name: str, present: set[str]) -> pb.CommandResult:
    if name in present:
        return pb.CommandResult(rejection_code="ALREADY_EXISTS")
    present.add(name)
    return pb.CommandResult()
