"""Up to where a rebuild folds each shard: the values of ``--as-of``, and their positions."""

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
    """Last ``positions`` of some shards, the others being folded whole; or a ``time`` for all."""

    positions: Mapping[int, int] | None = None
    time: datetime | None = None


END = AsOf()
"""Everything that the export has."""


def parse_as_of(text: str) -> AsOf:
    """Parse ``shard:position,...`` or an ISO time, which is UTC without a zone.

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


def check_positions(requested: Mapping[int, int], exported: Mapping[int, int]) -> dict[int, int]:
    """Return the last position to fold of each shard: the requested one, or the last exported one.

    Raises:
        JobRefused: The export does not reach so far, or has no such shard.
    """
    unknown = sorted(set(requested) - set(exported))
    if unknown:
        raise JobRefused(f"the export has no shard {unknown[0]}, it has {sorted(exported)}")
    for shard_id, position in sorted(requested.items()):
        if position > exported[shard_id]:
            raise JobRefused(
                f"the export of shard {shard_id} ends at position {exported[shard_id]}, "
                f"{position} was requested: export again"
            )
    return {**exported, **requested}
