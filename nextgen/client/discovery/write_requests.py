"""The writes that a client sends to discovery nodes, each with a command id of its own."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

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
