"""Which moves of topics may be sent twice."""

from __future__ import annotations

from collections.abc import Iterable

from protos.nextgen.v1.shard_service_pb2 import TopicMove


def are_repeatable(moves: Iterable[TopicMove]) -> bool:
    """Return whether repeating ``moves`` changes nothing.

    A move to a named broker, or from a named epoch, takes effect once. A move to any other broker
    does not: if its answer was lost, the repetition moves the topic again.
    """
    return all(move.target_broker_id or move.expected_epoch for move in moves)
