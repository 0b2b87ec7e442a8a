"""Statistics of a scalable topic's segments, as their brokers give them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nextgen.cli.console.output import print_table
from nextgen.client.wire.layouts import SEGMENT
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.layouts_pb2 import ScalableTopic

Gather = Callable[[Sequence[str]], Awaitable[list[dict[str, Any]]]]
"""Returns one document for each name, in their order: ``gather_topic_stats``."""

_COUNTS = ("producers", "entries", "bytes", "messages_in", "messages_out")


async def segment_documents(layout: ScalableTopic, gather: Gather) -> list[dict[str, Any]]:
    """Return one document for each segment, with what its broker knows.

    Raises:
        MetadataError: Discovery does not answer.
    """
    topic = parse_topic(layout.name)
    segments = [SEGMENT.from_stored(each) for each in layout.segments]
    found = await gather([each.name_in(topic) for each in segments])
    return [
        {
            "segment_id": segment.segment_id,
            "hash_start": segment.hash_start,
            "hash_end": segment.hash_end,
            "is_sealed": segment.is_sealed,
            **document,
        }
        for segment, document in zip(segments, found, strict=True)
    ]


def print_segment_stats(
    layout: ScalableTopic, documents: Sequence[dict[str, Any]], *, wide: bool
) -> None:
    """Print a table of segments, and one of subscriptions: the sum of each over all segments."""
    shown = [each for each in documents if not each.get("error")]
    columns = ("segment", "range", "state", "broker", "producers", "entries", "bytes", "in", "out")
    print_table(
        f"{layout.name}, epoch {layout.epoch}",
        columns,
        [_row(each) for each in shown],
        extra=("range", "bytes"),
        wide=wide,
    )
    types = {each.name: each.type for each in layout.subscriptions}
    sums: dict[str, list[int]] = {name: [0, 0, 0] for name in types}
    for document in shown:
        for each in document.get("subscriptions", ()):
            whole = sums.setdefault(each["name"], [0, 0, 0])
            whole[0] += 1
            whole[1] += each["backlog_entries"]
            whole[2] += each["unacked_messages"]
    if sums:
        print_table(
            "subscriptions",
            ("subscription", "type", "segments", "backlog", "unacked"),
            [(name, types.get(name, "classic"), *numbers) for name, numbers in sums.items()],
            wide=wide,
        )


def _row(document: dict[str, Any]) -> tuple[Any, ...]:
    state = "sealed" if document["is_sealed"] else "active"
    where = (
        document["segment_id"],
        f"{document['hash_start']:04x}-{document['hash_end']:04x}",
    )
    if not document["is_open"]:  # Nobody has asked its broker for its messages.
        return (*where, state, document["broker_id"], *[""] * len(_COUNTS))
    return (*where, state, document["broker_id"], *(document[each] for each in _COUNTS))
