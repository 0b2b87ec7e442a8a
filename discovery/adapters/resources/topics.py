"""/admin/v2/{domain}/{tenant}/{namespace}/{topic}: what the shards carry out.

Creation, partitions, deletion, properties, and taking a topic from its broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from discovery.adapters.resources.topic_codes import refused_as
from discovery.adapters.rest.answer import DONE, JSON, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest
from discovery.adapters.rest.route import BOOLEAN, TEXT_VALUE, Body, Route, Work
from discovery.domain.shadow_access import Needs, needs_of_new_topic
from discovery.service.admin.topic_operations import TopicOperations
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.access import Action
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import InvalidName, TopicName
from nextgen.kernel.routing.shadows import shadow_source_of
from protos.nextgen.v1.shard_service_pb2 import (
    TOPIC_FORM_WITH_PARTITIONS,
    TOPIC_FORM_WITHOUT_PARTITIONS,
    TopicForm,
)

TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"
PARTITIONS = f"{TOPIC}/partitions"
_METADATA = "application/vnd.partitioned-topic-metadata+json"

Properties = dict[str, str]

_NO_SHADOW = {RejectionCode.NOT_ALLOWED: 412, RejectionCode.SCALABLE: 412}
"""What forbids a shadow is its source: a precondition, and no conflict with what is there."""

_NOT_DELETED = {
    RejectionCode.IN_USE: 412,
    RejectionCode.NOT_PARTITIONED: 404,
    RejectionCode.NOT_EMPTY: 422,
}
"""NOT_EMPTY: it has shadows."""


class PartitionedTopic(BaseModel):
    """Number of partitions and properties of a new topic."""

    partitions: int = 0
    properties: Properties | None = None


_PROPERTIES = Body(TypeAdapter(Properties | None), is_required=False)
_NEW_PARTITIONS = Body(
    TypeAdapter(Annotated[int | PartitionedTopic, Field(union_mode="left_to_right")]),
    media_types=(JSON, _METADATA),
)
_MORE_PARTITIONS = Body(TypeAdapter(int))


class Topics:
    """Answers as a Pulsar does."""

    def __init__(self, operations: TopicOperations) -> None:
        self._operations = operations

    def routes(self) -> list[Route]:
        return [*self._of_topics(), *self._of_partitions(), *self._of_properties()]

    def _of_topics(self) -> list[Route]:
        return [
            _route(
                "PUT",
                TOPIC,
                self._create,
                "Create a topic",
                Action.CREATE,
                body=_PROPERTIES,
                besides=lambda request: needs_of_new_topic(request.body),
            ),
            _route(
                "DELETE",
                TOPIC,
                self._delete,
                "Delete a topic without partitions",
                Action.DELETE,
                query={"force": BOOLEAN},
            ),
            _route("PUT", f"{TOPIC}/unload", self._unload, "Unload a topic", Action.UNLOAD),
        ]

    def _of_partitions(self) -> list[Route]:
        return [
            _route(
                "PUT",
                PARTITIONS,
                self._create_partitioned,
                "Create a topic with partitions",
                Action.CREATE,
                body=_NEW_PARTITIONS,
                besides=_source_needed,
                also={406: "The number of partitions is out of bounds."},
            ),
            _route(
                "POST",
                PARTITIONS,
                self._grow,
                "Give a topic more partitions",
                Action.CHANGE,
                body=_MORE_PARTITIONS,
                also={406: "The number is out of bounds.", 422: "It has more."},
            ),
            _route(
                "DELETE",
                PARTITIONS,
                self._delete_partitioned,
                "Delete a topic with partitions",
                Action.DELETE,
                query={"force": BOOLEAN},
            ),
            _route(
                "POST",
                f"{TOPIC}/createMissedPartitions",
                self._create_missed,
                "Create what partitions are missing: subscriptions of the first one",
                Action.CHANGE,
            ),
        ]

    def _of_properties(self) -> list[Route]:
        path = f"{TOPIC}/properties"
        return [
            Route(
                "GET",
                path,
                self._properties,
                "A topic's properties",
                Action.READ,
                answers={200: "All of them."},
            ),
            _route("PUT", path, self._set, "Set properties", Action.CHANGE, body=_PROPERTIES),
            _route(
                "DELETE",
                path,
                self._remove,
                "Remove a property",
                Action.CHANGE,
                query={"key": TEXT_VALUE},
            ),
        ]

    async def _create(self, request: RestRequest) -> Answer:
        name = request.topic()
        await self._created(name, 0, request.body or {}, request)
        return DONE

    async def _create_partitioned(self, request: RestRequest) -> Answer:
        name = _whole(request)
        body = request.body
        if isinstance(body, int):
            body = PartitionedTopic(partitions=body)
        _check_count(body.partitions)
        await self._created(name, body.partitions, body.properties or {}, request)
        return DONE

    async def _created(
        self, name: TopicName, partitions: int, properties: Properties, request: RestRequest
    ) -> None:
        with refused_as(_NO_SHADOW if shadow_source_of(properties) else {}):
            await self._operations.create(name, partitions, properties, request.timeout_ms)

    async def _grow(self, request: RestRequest) -> Answer:
        name = _whole(request)
        _check_count(request.body)
        codes = {
            RejectionCode.NOT_PARTITIONED: 409,
            RejectionCode.FEWER_PARTITIONS: 422,
            RejectionCode.LIMIT_EXCEEDED: 406,
        }
        with refused_as(codes):
            await self._operations.grow(name, request.body, request.timeout_ms)
        return DONE

    async def _delete(self, request: RestRequest) -> Answer:
        name = request.topic()
        if name.partition is not None:
            topic = await self._operations.topic(name, request.timeout_ms)
            raise RestFailure(409, f"topic {topic.name} has partitions: delete it as such")
        return await self._deleted(name, TOPIC_FORM_WITHOUT_PARTITIONS, request)

    async def _delete_partitioned(self, request: RestRequest) -> Answer:
        return await self._deleted(_whole(request), TOPIC_FORM_WITH_PARTITIONS, request)

    async def _deleted(self, name: TopicName, form: TopicForm, request: RestRequest) -> Answer:
        is_forced = request.flag("force")
        # The shard checks the form: to read the topic first would cost another request.
        with refused_as(_NOT_DELETED):
            await self._operations.delete(name, form, request.timeout_ms, is_forced=is_forced)
        return DONE

    async def _create_missed(self, request: RestRequest) -> Answer:
        await self._operations.complete_partitions(_whole(request), request.timeout_ms)
        return DONE

    async def _unload(self, request: RestRequest) -> Answer:
        await self._operations.unload(request.topic(), request.timeout_ms)
        return DONE

    async def _properties(self, request: RestRequest) -> Answer:
        topic = await self._operations.topic(request.topic(), request.timeout_ms)
        return content(dict(sorted(topic.properties.items())))

    async def _set(self, request: RestRequest) -> Answer:
        new: Properties = request.body or {}
        await self._operations.change_properties(
            request.topic(), lambda present: present | new, request.timeout_ms
        )
        return DONE

    async def _remove(self, request: RestRequest) -> Answer:
        key = request.query.get("key", "")
        if not key:
            raise RestFailure(412, "the query names no key")

        def without(present: dict[str, str]) -> Mapping[str, str]:
            present.pop(key, None)
            return present

        await self._operations.change_properties(request.topic(), without, request.timeout_ms)
        return DONE


def _whole(request: RestRequest) -> TopicName:
    """Return the topic that the path names.

    Raises:
        InvalidName: It is a partition.
    """
    name = request.topic()
    if name.partition is not None:
        raise InvalidName(f"{name.text} is a partition")
    return name


def _check_count(partitions: int) -> None:
    if not 0 < partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise RestFailure(406, f"a topic has 1 to {PARTITIONS_PER_TOPIC_MAX} partitions")


def _source_needed(request: RestRequest) -> Needs:
    body = request.body
    return needs_of_new_topic(body.properties) if isinstance(body, PartitionedTopic) else []


def _route(
    method: str,
    path: str,
    work: Work,
    summary: str,
    action: Action,
    *,
    also: Mapping[int, str] | None = None,
    **more: Any,
) -> Route:
    answers = {204: "It is done.", 409: "It exists, or has partitions.", **(also or {})}
    return Route(method, path, work, summary, action, answers=answers, **more)
