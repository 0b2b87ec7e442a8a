"""Reads which tenants, namespaces and topics one broker holds, and in which version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import ObjectName

_GET_METADATA = "/nextgen.v1.BrokerService/GetMetadata"


@dataclass(frozen=True, slots=True)
class HeldMetadata:
    """What a broker holds at one moment. ``items`` are in the order of the request."""

    broker_id: str
    session_id: str
    applied_sequence: int
    """Everything up to it in the session's sequence is in ``items``."""
    items: Sequence[Item]
    """An item without a value is an object that the broker does not hold."""


async def broker_metadata(channel: grpc.aio.Channel, names: Sequence[ObjectName]) -> HeldMetadata:
    """Return the objects as the broker at the other end of ``channel`` holds them.

    Raises:
        InvalidRequest: More than ``NAMES_PER_GET_MAX`` names.
        MetadataError: The broker could not be reached.
    """
    call: Any = channel.unary_unary(
        _GET_METADATA,
        request_serializer=pb.GetMetadataRequest.SerializeToString,
        response_deserializer=pb.GetMetadataResponse.FromString,
    )
    try:
        response: pb.GetMetadataResponse = await call(
            pb.GetMetadataRequest(names=names), timeout=REQUEST_TIMEOUT_DEFAULT_MS / 1_000
        )
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    return HeldMetadata(
        response.broker_id, response.session_id, response.applied_sequence, response.items
    )
