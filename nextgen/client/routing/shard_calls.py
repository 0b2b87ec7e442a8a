"""The calls to shards that the parts of a topic directory need."""

from __future__ import annotations

from typing import Protocol

from nextgen.client.routing.shared_questions import (
    Answer,
    CarryOut,
    GroupOf,
    SharedQuestions,
)
from nextgen.kernel.limits.pulsar import DIRECTORY_NAMES_WAITING_MAX, DIRECTORY_READS_IN_FLIGHT_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb


class Shards(Protocol):
    """A ``ShardRouter``. Every method raises ``MetadataError``."""

    def shard_of_key(self, routing_key: str) -> int: ...

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> pb.ShardResponse: ...


def questions(
    carry_out: CarryOut[Answer], batch_max: int, group_of: GroupOf | None = None
) -> SharedQuestions[Answer]:
    """Return one kind of question of a topic directory, with a directory's limits."""
    return SharedQuestions(
        carry_out,
        batch_max=batch_max,
        in_flight_max=DIRECTORY_READS_IN_FLIGHT_MAX,
        waiting_max=DIRECTORY_NAMES_WAITING_MAX,
        group_of=group_of,
    )
