"""Following what one broker says about when it acknowledged messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc
import grpc.aio

from nextgen.audit.interval_check import AcknowledgedInterval
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc
from protos.nextgen.v1 import broker_service_pb2 as pb

_WATCH = "/nextgen.v1.BrokerService/WatchAcknowledgements"


async def acknowledged_intervals(endpoint: str) -> AsyncGenerator[list[AcknowledgedInterval]]:
    """Yield all intervals that the broker remembers, then those that grow, each second or so.

    Raises:
        MetadataError: The broker could not be asked, or has gone.
    """
    channel = open_channel(endpoint)
    try:
        # A process that is frozen takes a connection, and never says a word.
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


def _interval(broker_id: str, told: pb.AcknowledgementInterval) -> AcknowledgedInterval:
    return AcknowledgedInterval(
        broker_id=broker_id,
        topic=told.topic,
        topic_id=told.topic_id,
        unit=told.unit,
        epoch=told.epoch,
        first_ns=told.first_acked_at_ns,
        last_ns=told.last_acked_at_ns,
        acknowledged=told.acknowledged,
    )
