"""The writes that a client sends to discovery nodes, each with a command id of its own; renames of
namespaces and tenants, which have none, are repeated turn by turn until they are done."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from nextgen.client.discovery.nodes import Response
from nextgen.client.model import Written
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb

WriteRequest = (
    pb.CreateTenantRequest
    | pb.CreateNamespaceRequest
    | pb.SetPropertiesRequest
    | pb.SetPoliciesRequest
    | pb.DeleteRequest
    | pb.RenameTopicRequest
    | pb.UpdatePartitionsRequest
    | pb.UpdateLayoutRequest
    | pb.ScalableSubscriptionRequest
)


_ON_TOPICS = frozenset({"SetTopicProperties", "UpdatePartitions", "DeleteTopic", "RenameTopic"})

TurnOf = Callable[[pb.RenameParentRequest], Awaitable[pb.RenameParentResponse]]
"""Carries out one turn. Raises ``MetadataError``."""


@dataclass(frozen=True, slots=True)
class RenameProgress:
    """What a call has done so far: topics that it checked and renamed, the namespace that it is at
    by its former name."""

    renamed: int = 0
    checked: int = 0
    namespace: str = ""


OnProgress = Callable[[RenameProgress], None]


async def rename_in_turns(
    turn_of: TurnOf, request: pb.RenameParentRequest, on_progress: OnProgress
) -> RenameProgress:
    """Repeat ``request`` until the rename is done.

    Raises:
        MetadataError: That of a turn. What was renamed stays so: a repetition goes on.
    """
    progress = RenameProgress()
    while True:
        turn = await turn_of(request)
        progress = RenameProgress(
            progress.renamed + turn.renamed, progress.checked + turn.checked, turn.namespace
        )
        on_progress(progress)
        if turn.is_done:
            return progress
        request.token = turn.next_token


def new_command_id() -> bytes:
    """Return an id that no other command has."""
    return secrets.token_bytes(COMMAND_ID_BYTES)


def set_properties(
    name: str, properties: Mapping[str, str], expected_version: int
) -> pb.SetPropertiesRequest:
    return pb.SetPropertiesRequest(
        command_id=new_command_id(),
        name=name,
        properties=properties,
        expected_version=expected_version,
    )


def deletion(name: str, *, force: bool = False) -> pb.DeleteRequest:
    return pb.DeleteRequest(command_id=new_command_id(), name=name, force=force)


def topics_in(method: str, request: WriteRequest) -> list[TopicName]:
    """Return the names of a write that lead to one classic topic, whose shard has carried it out.

    They are valid: the write was accepted.
    """
    is_topic = method in _ON_TOPICS or (method == "SetPolicies" and request.name.count("/") > 1)
    if not is_topic:
        return []
    names = [parse_topic(request.name)]
    if isinstance(request, pb.RenameTopicRequest):
        new_name = request.new_name
        is_local = "/" not in new_name
        names.append(parse_topic(f"{names[0].namespace_text}/{new_name}" if is_local else new_name))
    return names


class TopicWrites:
    """The changes of topics of a ``Client``, beside their creation."""

    async def set_topic_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        """Replace all properties. ``expected_version`` 0 means any."""
        request = set_properties(name, properties, expected_version)
        return await self._write("SetTopicProperties", request)

    async def update_partitions(self, name: str, partitions: int) -> Written:
        """Give a partitioned topic more partitions, ``partitions`` in all.

        Clients of Pulsar use them once they ask for the number again, as they do every minute.
        """
        request = pb.UpdatePartitionsRequest(
            command_id=new_command_id(), name=name, partitions=partitions
        )
        return await self._write("UpdatePartitions", request)

    async def rename_topic(
        self, name: str, new_name: str, *, grace_ms: int | None = None
    ) -> Written:
        """Give a topic another name, in any namespace. What it has stays with it, its id too.

        For ``grace_ms`` the former name leads to it as well, for an hour by default; a minute later
        the name is free. Clients that are connected look the topic up again and go on.

        Raises:
            Refused: ALREADY_EXISTS, a topic has the new name, or it leads to one; NOT_ALLOWED,
                topics of this kind keep their names; NOT_FOUND; PARENT_NOT_FOUND; LIMIT_EXCEEDED.
        """
        request = pb.RenameTopicRequest(
            command_id=new_command_id(), name=name, new_name=new_name, grace_ms=grace_ms
        )
        return await self._write("RenameTopic", request)

    async def delete_topic(self, name: str, *, force: bool = False) -> Written:
        """Delete a topic with all its partitions.

        Refused with IN_USE while it has producers, consumers or subscriptions, unless forced.
        """
        return await self._write("DeleteTopic", deletion(name, force=force))

    async def _write(self, method: str, request: WriteRequest) -> Written:
        raise NotImplementedError("a client sends it")


class ParentRenames:
    """The renames of a ``Client`` beside those of topics."""

    async def rename_namespace(
        self,
        name: str,
        new_name: str,
        *,
        grace_ms: int | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> RenameProgress:
        """Give a namespace another name, in any tenant: its topics are renamed one by one.

        Both names are there meanwhile, and each topic has one of them; see ``rename_topic`` for
        what it keeps and for ``grace_ms``. At the end the old namespace is deleted. If the call
        fails, or its process ends, the same call goes on.

        Raises:
            Refused: ALREADY_EXISTS, there is another namespace or topic of the new name;
                NOT_ALLOWED, a topic keeps its name; NOT_FOUND; PARENT_NOT_FOUND; LIMIT_EXCEEDED.
        """
        return await self._rename_parent("RenameNamespace", name, new_name, grace_ms, on_progress)

    async def rename_tenant(
        self,
        name: str,
        new_name: str,
        *,
        grace_ms: int | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> RenameProgress:
        """Give a tenant another name, namespace by namespace; as ``rename_namespace``."""
        return await self._rename_parent("RenameTenant", name, new_name, grace_ms, on_progress)

    async def _rename_parent(
        self,
        method: str,
        name: str,
        new_name: str,
        grace_ms: int | None,
        on_progress: OnProgress,
    ) -> RenameProgress:
        async def turn_of(request: pb.RenameParentRequest) -> pb.RenameParentResponse:
            return await self._call(method, request, pb.RenameParentResponse)

        request = pb.RenameParentRequest(name=name, new_name=new_name, grace_ms=grace_ms)
        return await rename_in_turns(turn_of, request, on_progress)

    async def _call(
        self, method: str, request: pb.RenameParentRequest, response_type: type[Response]
    ) -> Response:
        raise NotImplementedError("a client sends it")
