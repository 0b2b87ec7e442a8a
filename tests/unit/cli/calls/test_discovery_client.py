"""The error of a command when no discovery node answers."""

from __future__ import annotations

import socket

import pytest

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest


async def test_an_address_where_nothing_listens_is_named_with_the_reason() -> None:
    # Given: a port that was free a moment ago.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    # When: a command calls a discovery node there.
    with pytest.raises(Unavailable) as refused:
        async with DiscoveryClient([address], timeout_ms=50) as client:
            await client.call("GetCluster", GetClusterRequest())

    # Then: the sentence has the address and the reason, and nothing of gRPC's.
    assert str(refused.value) == f"nothing answers at {address}: Connection refused"
