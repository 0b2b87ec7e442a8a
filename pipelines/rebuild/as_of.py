"""Up to where a rebuild folds each shard: what ``--as-of`` may say, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nextgen.client.watch_model import parse_token
from nextgen.kernel.errors import InvalidRequest
from pipelines.errors import JobRefused
from pipelines.iso_time import TIME_EXAMPLE, parse_time, shown_option


@dataclass(frozen=True, slots=True)
class AsOf:
    """``positions`` of some shards (the others are folded whole), or one ``time`` for all."""

    positions: Mapping[int, int] | None = None
    time: datetime | None = None


END = AsOf()
"""As of the end of the export."""


def parse_as_of(text: str) -> AsOf:
    """Return what ``text`` says: ``shard:position,...``, or an ISO time; without a zone it is UTC.

    Raises:
        InvalidRequest: It is neither.
    """
    time = parse_time(text)
    if time is not None:
        return AsOf(time=time)
    try:
        return AsOf(positions=parse_token(text))
    except InvalidRequest:
        raise InvalidRequest(
            f"{shown_option('--as-of', text)} is neither a time like {TIME_EXAMPLE} "
            "nor positions like 1:500,2:730"
        ) from None


def check_positions(asked: Mapping[int, int], exported: Mapping[int, int]) -> dict[int, int]:
    """Return up to where each shard of an export is folded, given what was asked of some.

    Raises:
        JobRefused: The export does not reach so far, or has no such shard.
    """
    unknown = sorted(set(asked) - set(exported))
    if unknown:
        raise JobRefused(f"the export has no shard {unknown[0]}, it has {sorted(exported)}")
    for shard_id, position in sorted(asked.items()):
        if position > exported[shard_id]:
            raise JobRefused(
                f"the export of shard {shard_id} ends at position {exported[shard_id]}, "
                f"{position} was asked for: export again"
            )
    return {**exported, **asked}
