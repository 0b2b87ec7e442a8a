"""Removes the rows of slots that left a shard, or that it refused: slowly, beside other work."""

from __future__ import annotations

import asyncio

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.snapshot import COPY_ROWS_MAX
from shards.domain.slot_moves.decider import RemoveRows, decide
from shards.domain.slots.events import SlotKey, SlotRanges
from shards.projections.rows import Query
from shards.slots.slot_scan import ScanPlace, SlotScan
from shards.state.shard_state import ShardState

_PAUSE_S = 0.02
"""Between two records: some 10,000 rows a second, a tenth of the time of the leader's loop."""


async def remove_rows(state: ShardState, query: Query, move_id: int, ranges: SlotRanges) -> None:
    """Remove every row of ``ranges``, none of which the shard owns, and say so in the log.

    May be begun again at any time: what is gone is gone.

    Raises:
        MetadataError: The shard cannot write now, or does not lead any more.
    """
    # What was proposed before has to be in the view, or its rows would not be found.
    await state.log.wait_position(state.position)
    scan, place = SlotScan(query, ranges), ScanPlace()
    keys: list[SlotKey] = []
    while not place.is_done:
        found = scan.slice(place, COPY_ROWS_MAX - len(keys))
        keys += [SlotKey(found.kind, key) for key in found.keys]
        place = found.next
        if len(keys) >= COPY_ROWS_MAX and not place.is_done:
            await _propose(state, RemoveRows(move_id, tuple(keys), is_last=False))
            keys = []
            await asyncio.sleep(_PAUSE_S)
        else:
            await asyncio.sleep(0)
    await _propose(state, RemoveRows(move_id, tuple(keys), is_last=True))


async def _propose(state: ShardState, command: RemoveRows) -> None:
    decision = decide(state.reads.load_shard(), command)
    if not isinstance(decision, Accepted):
        raise Refused(decision.code, decision.message)
    await state.proposer.propose(decision.events, keeps_states=False)
