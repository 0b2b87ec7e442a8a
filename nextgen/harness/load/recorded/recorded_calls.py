"""Requests to discovery nodes, recorded in a history before they leave and again when answered.

The outcome of an operation depends only on the kind of its error: see
``nextgen.harness.history.model``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient, new_command_id
from nextgen.harness.history.log_events import policies_text
from nextgen.harness.history.model import (
    OK,
    UNKNOWN,
    ObjectKind,
    Operation,
    OperationKind,
    failed,
    object_kind,
    refused,
)
from nextgen.harness.history.record_file import Recorder
from nextgen.kernel.errors import Definite, InvalidRequest, MetadataError, Refused
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_ASYNC,
    CONSISTENCY_EFFECTIVE,
    TopicMove,
    TopicSpec,
)

_SUFFIXES = {
    ObjectKind.TENANT: "Tenant",
    ObjectKind.NAMESPACE: "Namespace",
    ObjectKind.TOPIC: "Topic",
}


_TELL_VERSION = frozenset(
    {OperationKind.SET_PROPERTIES, OperationKind.SET_POLICIES, OperationKind.RENAME}
)


class RecordedCalls:
    """One client of the history, over any discovery node. ``acknowledged`` counts successful
    operations, ``renames`` those of them that renamed a topic.

    ``not_understood`` has requests that the cluster called invalid: they are well-formed, so the
    cluster's release does not fit this load.
    """

    def __init__(self, name: str, client: DiscoveryClient, recorder: Recorder) -> None:
        self.name = name
        self.asked = 0
        self.acknowledged = 0
        self.renames = 0
        self.not_understood = ""
        self._client = client
        self._recorder = recorder
        self._numbers = itertools.count(1)

    async def create(
        self, key: str, properties: Mapping[str, str], *, segments: int = 0
    ) -> Operation:
        """Create a tenant, a namespace or a topic that is not partitioned; a scalable one with so
        many segments."""
        asked = self._asked(
            OperationKind.CREATE, key, {"properties": dict(properties), "partitions": 0}
        )
        if object_kind(key) is not ObjectKind.TOPIC:
            kind = _SUFFIXES[object_kind(key)]
            request = getattr(pb, f"Create{kind}Request")(
                command_id=bytes.fromhex(asked.command_id), name=key, properties=properties
            )
            return await self._write(asked, f"Create{kind}", request)
        request = pb.CreateTopicsRequest(
            command_id=bytes.fromhex(asked.command_id),
            topics=[TopicSpec(name=key, properties=properties, segments=segments)],
        )
        # Discovery derives another id from it for each shard.
        return await self._create_topic(replace(asked, command_id=""), request)

    async def delete(self, key: str) -> Operation:
        """Delete the object."""
        asked = self._asked(OperationKind.DELETE, key, {})
        request = pb.DeleteRequest(command_id=bytes.fromhex(asked.command_id), name=key)
        return await self._write(asked, f"Delete{_SUFFIXES[object_kind(key)]}", request)

    async def set_properties(
        self, key: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Operation:
        """Replace the object's properties; ``expected_version`` 0 means any."""
        argument = {"properties": dict(properties), "expected_version": expected_version}
        asked = self._asked(OperationKind.SET_PROPERTIES, key, argument)
        request = pb.SetPropertiesRequest(
            command_id=bytes.fromhex(asked.command_id),
            name=key,
            properties=properties,
            expected_version=expected_version,
        )
        return await self._write(asked, f"Set{_SUFFIXES[object_kind(key)]}Properties", request)

    async def rename(self, key: str, new_name: str, *, grace_ms: int) -> Operation:
        """Give a topic another name. ``key``, one of its names, leads to it for ``grace_ms``."""
        asked = self._asked(OperationKind.RENAME, key, {"new_name": new_name})
        request = pb.RenameTopicRequest(
            command_id=bytes.fromhex(asked.command_id),
            name=key,
            new_name=new_name,
            grace_ms=grace_ms,
        )
        return await self._write(asked, "RenameTopic", request)

    async def set_policies(
        self,
        key: str,
        policies: Policies | None,
        *,
        expected_version: int | None = None,
        effective: bool = False,
    ) -> Operation:
        """Replace the object's policies; None clears them.

        ``expected_version`` is that of the policies: 0 means never set, None any.
        """
        argument = {
            "policies": policies_text(policies) if policies is not None else "",
            "expected_version": expected_version or 0,
            "expects_none": expected_version == 0,
        }
        asked = self._asked(OperationKind.SET_POLICIES, key, argument)
        request = pb.SetPoliciesRequest(
            command_id=bytes.fromhex(asked.command_id),
            name=key,
            policies=policies,
            expected_version=expected_version or 0,
            expects_none=expected_version == 0,
            consistency=CONSISTENCY_EFFECTIVE if effective else CONSISTENCY_ASYNC,
        )
        return await self._write(asked, "SetPolicies", request)

    async def get_policies(self, key: str) -> Operation:
        """Read the object's own policies, linearizable."""
        asked = replace(self._asked(OperationKind.GET_POLICIES, key, {}), command_id="")
        answer = await self._call(asked, "GetPolicies", pb.GetPoliciesRequest(name=key))
        if isinstance(answer, Operation):
            return answer
        value = {
            "policies": policies_text(answer.policies),
            "policies_version": answer.version,
        }
        return self._answered(asked, OK, value)

    async def get(self, key: str) -> Operation:
        """Read the object, linearizable."""
        kind = object_kind(key)
        asked = replace(self._asked(OperationKind.GET, key, {}), command_id="")
        answer = await self._call(asked, f"Get{_SUFFIXES[kind]}", pb.GetObjectRequest(name=key))
        if isinstance(answer, Operation):
            return answer
        found = answer.item.WhichOneof("value") if answer.HasField("item") else None
        if found is None:
            return self._answered(asked, OK, {})
        body = getattr(answer.item, found)
        identity = getattr(body, f"{found}_id")
        value = {
            "id": identity,
            "version": body.version,
            "properties": dict(body.properties),
            "policies": policies_text(body.policies),
            "policies_version": body.policies_version,
        }
        return self._answered(asked, OK, value)

    async def lookup(self, key: str) -> Operation:
        """Look up a topic, which assigns an idle one."""
        asked = replace(self._asked(OperationKind.LOOKUP, key, {}), command_id="")
        answer = await self._call(asked, "Lookup", pb.LookupRequest(topics=[key]))
        return answer if isinstance(answer, Operation) else self._located(asked, answer.answers[0])

    async def lookup_at(self, key: str, node: str, *, fresh: bool) -> Operation:
        """Look up a topic at exactly one discovery node; ``fresh``: linearizable."""
        argument: dict[str, object] = {"node": node, "fresh": fresh}
        asked = replace(self._asked(OperationKind.LOOKUP, key, argument), command_id="")
        request = pb.LookupRequest(topics=[key], fresh=fresh)
        answer = await self._call(asked, "Lookup", request, node=node)
        if isinstance(answer, Operation):
            return answer
        if answer.fresh is not fresh:
            # A node of a release that does not know the demanded fields.
            return self._answered(asked, UNKNOWN, {})
        return self._located(asked, answer.answers[0])

    async def move(self, key: str, expected_epoch: int) -> Operation:
        """Move a topic to any other broker, once, from its known epoch."""
        asked = replace(self._asked(OperationKind.MOVE, key, {"target": ""}), command_id="")
        move = TopicMove(topic=key, expected_epoch=expected_epoch)
        answer = await self._call(asked, "MoveTopics", pb.MoveTopicsRequest(moves=[move]))
        return answer if isinstance(answer, Operation) else self._located(asked, answer.answers[0])

    async def change_layout(
        self, key: str, kind: str, segments: Sequence[int], buckets: int = 0
    ) -> Operation:
        """Split a segment of a scalable topic, merge two, or give one so many entry buckets."""
        argument = {"kind": kind, "segments": list(segments), "buckets": buckets}
        asked = self._asked(OperationKind.CHANGE_LAYOUT, key, argument)
        request = pb.UpdateLayoutRequest(
            command_id=bytes.fromhex(asked.command_id),
            name=key,
            kind=kind,
            segments=segments,
            buckets=buckets,
        )
        return await self._write(asked, "UpdateLayout", request)

    async def create_subscription(self, key: str, subscription: str, type_: str) -> Operation:
        """Create a subscription of a scalable topic: ``stream``, ``queue`` or ``checkpoint``."""
        argument = {"subscription": subscription, "type": type_}
        asked = self._asked(OperationKind.CREATE_SUBSCRIPTION, key, argument)
        request = pb.ScalableSubscriptionRequest(
            command_id=bytes.fromhex(asked.command_id),
            name=key,
            subscription=subscription,
            type=type_,
        )
        return await self._write(asked, "CreateScalableSubscription", request)

    async def delete_subscription(self, key: str, subscription: str) -> Operation:
        """Delete a subscription of a scalable topic."""
        asked = self._asked(OperationKind.DELETE_SUBSCRIPTION, key, {"subscription": subscription})
        request = pb.ScalableSubscriptionRequest(
            command_id=bytes.fromhex(asked.command_id), name=key, subscription=subscription
        )
        return await self._write(asked, "DeleteScalableSubscription", request)

    # ------------------------------------------------------------------------------------------

    def _asked(self, kind: OperationKind, key: str, argument: Mapping[str, object]) -> Operation:
        return Operation(
            client=self.name,
            op_id=next(self._numbers),
            kind=kind,
            key=key,
            invoked_ns=time.monotonic_ns(),
            argument=argument,
            command_id=new_command_id().hex(),
        )

    async def _call(self, asked: Operation, method: str, request: Any, *, node: str = "") -> Any:
        """Return the answer, or the recorded operation if there is none."""
        self._recorder.write(asked)
        self.asked += 1
        try:
            if node:
                return await self._client.call_at(node, method, request)
            return await self._client.call(method, request)
        except Refused as error:
            return self._answered(asked, refused(error.code), {})
        except Definite as error:
            if isinstance(error, InvalidRequest) and not self.not_understood:
                self.not_understood = f"{method} of {asked.key}: {error}"
            return self._answered(asked, failed(error.reason), {})
        except MetadataError:
            return self._answered(asked, UNKNOWN, {})

    async def _write(self, asked: Operation, method: str, request: Any) -> Operation:
        answer = await self._call(asked, method, request)
        if isinstance(answer, Operation):
            return answer
        value: dict[str, object] = {"id": answer.id}
        if asked.kind in _TELL_VERSION:
            value["version"] = answer.version
        return self._answered(asked, OK, value, shard=answer.shard_id, position=answer.position)

    async def _create_topic(self, asked: Operation, request: Any) -> Operation:
        answer = await self._call(asked, "CreateTopics", request)
        if isinstance(answer, Operation):
            return answer
        (outcome,) = answer.topics
        if outcome.rejection_code:
            return self._answered(asked, refused(outcome.rejection_code), {})
        shard, position = next(((at.shard_id, at.position) for at in answer.positions), (0, 0))
        value = {"id": outcome.topic_id}
        return self._answered(asked, OK, value, shard=shard, position=position)

    def _located(self, asked: Operation, answer: LookupAnswer) -> Operation:
        if answer.rejection_code:
            # A transient failure does not show whether the topic was assigned.
            code = refused(answer.rejection_code)
            return self._answered(asked, UNKNOWN if answer.retryable else code, {})
        value = {
            "topic_id": answer.topic_id,
            "epoch": answer.epoch,
            "broker_id": answer.broker_id,
            "session_id": answer.session_id,
        }
        return self._answered(asked, OK, value)

    def _answered(
        self,
        asked: Operation,
        outcome: str,
        value: Mapping[str, object],
        *,
        shard: int = 0,
        position: int = 0,
    ) -> Operation:
        operation = replace(
            asked,
            returned_ns=time.monotonic_ns(),
            outcome=outcome,
            value=value,
            shard=shard,
            position=position,
        )
        self._recorder.write(operation)
        self.acknowledged += operation.is_ok
        self.renames += operation.is_ok and operation.kind is OperationKind.RENAME
        return operation
