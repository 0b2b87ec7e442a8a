"""The writes that a client sends to discovery nodes, each with a command id of its own."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from protos.nextgen.v1 import discovery_service_pb2 as pb

WriteRequest = (
    pb.CreateTenantRequest
    | pb.CreateNamespaceRequest
    | pb.SetPropertiesRequest
    | pb.SetPoliciesRequest
    | pb.DeleteRequest
    | pb.UpdatePartitionsRequest
    | pb.UpdateLayoutRequest
    | pb.ScalableSubscriptionRequest
)


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


def update_partitions(name: str, partitions: int) -> pb.UpdatePartitionsRequest:
    return pb.UpdatePartitionsRequest(command_id=new_command_id(), name=name, partitions=partitions)
