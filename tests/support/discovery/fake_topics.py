"""Topics for tests of what operators do to them: an inventory, moves, and brokers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import NamespaceName, TopicName
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item, Topic
from protos.nextgen.v1.shard_service_pb2 import (
    TOPIC_FORM_WITH_PARTITIONS,
    TOPIC_FORM_WITHOUT_PARTITIONS,
    TopicForm,
    TopicOutcome,
    UnassignOutcome,
)


class FakeInventory:
    """The inventory's part of ``TopicOperations``, and moves: topics by name."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.used: set[str] = set()
        """Topics that are in use."""
        self.before_set: Any = lambda: None
        """Called before properties are set."""
        self.completed: list[str] = []
        """Topics whose partitions got the subscriptions that they were missing."""
        self.unloaded: list[str] = []
        self.graces: list[int | None] = []
        """Of renames."""
        self.rename_refusal = ""
        self.unload_outcome = UnassignOutcome(unassigned=True)

    def add(self, name: str, partitions: int = 0, **properties: str) -> Topic:
        topic = Topic(name=name, partitions=partitions, properties=properties, version=1)
        self.topics[name] = topic
        return topic

    async def get_namespace(
        self, request: pb.GetObjectRequest, _timeout_ms: int
    ) -> pb.GetObjectResponse:
        response = pb.GetObjectResponse()
        response.item.namespace.name = request.name
        return response

    async def stream_topics(
        self, _namespace: NamespaceName, *, domain: str, prefix: str = "", names_only: bool = True
    ) -> AsyncGenerator[list[tuple[str, int, Item | None]]]:
        beginning = f"{domain}://" if domain else ""
        yield [
            (topic.name, topic.partitions, None if names_only else Item(topic=topic))
            for topic in self.topics.values()
            if topic.name.startswith(beginning) and prefix in topic.name
        ]

    async def get_topic(
        self, request: pb.GetObjectRequest, _timeout_ms: int
    ) -> pb.GetObjectResponse:
        response = pb.GetObjectResponse()
        if request.name in self.topics:
            response.item.topic.CopyFrom(self.topics[request.name])
        return response

    async def create_topics(
        self, request: pb.CreateTopicsRequest, _timeout_ms: int
    ) -> pb.CreateTopicsResponse:
        (spec,) = request.topics
        outcome = TopicOutcome()
        if spec.name in self.topics:
            outcome.rejection_code = RejectionCode.ALREADY_EXISTS
            outcome.message = f"topic {spec.name} exists"
        else:
            self.add(spec.name, spec.partitions, **spec.properties)
        return pb.CreateTopicsResponse(topics=[outcome])

    async def set_topic_properties(self, request: pb.SetPropertiesRequest, _timeout_ms: int) -> Any:
        self.before_set()
        topic = self.topics[request.name]
        if topic.version != request.expected_version:
            raise Refused(RejectionCode.VERSION_MISMATCH, "it was changed")
        topic.properties.clear()
        topic.properties.update(request.properties)
        topic.version += 1

    async def update_partitions(self, request: pb.UpdatePartitionsRequest, _timeout_ms: int) -> Any:
        topic = self.topics.get(request.name)
        if topic is None:
            raise Refused(RejectionCode.NOT_FOUND, "there is no such topic")
        if not topic.partitions:
            raise Refused(RejectionCode.NOT_PARTITIONED, "it has none")
        if request.partitions < topic.partitions:
            raise Refused(RejectionCode.FEWER_PARTITIONS, "it has more")
        topic.partitions = request.partitions

    async def complete_partitions(self, name: TopicName, _timeout_ms: int) -> None:
        self.completed.append(name.text)

    async def delete_topic(
        self, request: pb.DeleteRequest, _timeout_ms: int, form: TopicForm
    ) -> Any:
        topic = self.topics.get(request.name)
        if topic is None:
            raise Refused(RejectionCode.NOT_FOUND, "there is no such topic")
        if topic.partitions and form == TOPIC_FORM_WITHOUT_PARTITIONS:
            raise Refused(RejectionCode.PARTITIONED, "it has partitions")
        if not topic.partitions and form == TOPIC_FORM_WITH_PARTITIONS:
            raise Refused(RejectionCode.NOT_PARTITIONED, "it has no partitions")
        if request.name in self.used and not request.force:
            raise Refused(RejectionCode.IN_USE, "it has producers")
        del self.topics[request.name]

    async def rename_topic(self, request: pb.RenameTopicRequest, _timeout_ms: int) -> Any:
        topic = self.topics.get(request.name)
        if topic is None:
            raise Refused(RejectionCode.NOT_FOUND, "there is no such topic")
        if self.rename_refusal:
            raise Refused(self.rename_refusal, "it keeps its name")
        if request.new_name in self.topics:
            raise Refused(RejectionCode.ALREADY_EXISTS, "the name is taken")
        topic.name = request.new_name
        self.topics[request.new_name] = self.topics.pop(request.name)
        self.graces.append(request.grace_ms if request.HasField("grace_ms") else None)

    async def unload_topics(
        self, request: pb.UnloadTopicsRequest, _timeout_ms: int
    ) -> pb.UnloadTopicsResponse:
        self.unloaded += request.topics
        return pb.UnloadTopicsResponse(outcomes=[self.unload_outcome] * len(request.topics))
