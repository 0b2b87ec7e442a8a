"""Which moves of topics may be asked for twice."""

from __future__ import annotations

from collections.abc import Iterable

from protos.nextgen.v1.shard_service_pb2 import TopicMove


def are_repeatable(moves: Iterable[TopicMove]) -> bool:
    """Say whether all of ``moves`` change nothing when they are asked for once more.

    A topic that goes to a named broker, or from a named epoch, goes once. One that goes to "any
    other" broker than the one that a lost answer has brought it to would go once too often.
    """
    return all(move.target_broker_id or move.expected_epoch for move in moves)
