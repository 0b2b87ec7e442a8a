"""The stream in which one broker reports when it acknowledged messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from nextgen.audit.interval_check import AcknowledgedInterval
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc
from nextgen.runtime.security.node_identity import NodeRole
from protos.nextgen.v1 import broker_service_pb2 as pb

_WATCH = "/nextgen.v1.BrokerService/WatchAcknowledgements"


async def acknowledged_intervals(endpoint: str) -> AsyncGenerator[list[AcknowledgedInterval]]:
    """Yield all intervals that the broker remembers, then about once a second those that grew.

    Raises:
        MetadataError: The broker could not be reached, or the stream broke.
    """
    channel = open_channel(endpoint, NodeRole.BROKER)
    try:
        # A frozen process accepts a connection and then stays silent.
        await wait_connected(channel, endpoint)
        watch: Any = channel.unary_stream(
            _WATCH,
            request_serializer=pb.WatchAcknowledgementsRequest.SerializeToString,
            response_deserializer=pb.AcknowledgementReport.FromString,
        )
        async for report in watch(pb.WatchAcknowledgementsRequest()):
            yield [_interval(report.broker_id, each) for each in report.intervals]
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)


def _interval(broker_id: str, reported: pb.AcknowledgementInterval) -> AcknowledgedInterval:
    return AcknowledgedInterval(
        broker_id=broker_id,
        topic=reported.topic,
        topic_id=reported.topic_id,
        unit=reported.unit,
        epoch=reported.epoch,
        first_ns=reported.first_acked_at_ns,
        last_ns=reported.last_acked_at_ns,
        acknowledged=reported.acknowledged,
    )
