"""A replica's answer to ``PinLog``, the request about named readers of its log."""

from __future__ import annotations

from nextgen.kernel.errors import PositionAhead
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.shard_service_pb2 import LogReader, PinLogRequest, PinLogResponse


async def answer_pin_log(log: ReplicatedLog, request: PinLogRequest) -> PinLogResponse:
    """Set, renew or release the pin that ``request`` names, if any; return all named readers.

    A follower accepts a position that it has not reached yet: the reader may be ahead of it.

    Raises:
        PositionAhead: This replica leads, a majority confirms it, and no event is there yet.
        MetadataError: As ``ReplicatedLog.pin_reader`` has it.
    """
    if request.reader_id:
        position = max(1, request.position)
        if request.ttl_ms and log.is_leader and position > log.commit_position + 1:
            await log.read_index()
            if position > log.commit_position + 1:
                raise PositionAhead(position, log.commit_position, is_final=True)
        await log.pin_reader(request.reader_id, position, request.ttl_ms)
    return PinLogResponse(
        oldest_position=log.status.first_position,
        readers=[
            LogReader(
                reader_id=reader.reader_id,
                position=reader.position,
                expires_in_ms=reader.expires_in_ms,
                is_broken=reader.is_broken,
            )
            for reader in log.readers()
        ],
    )
