"""One ``Watch…`` call: sends the updates of its watch, until either of them ends.

A write that waits for flow control is never cancelled: that would end the call without its reason.
A watcher that reads gets the reason as the last update. One that does not read gets it as the
status of the call, which overtakes pending updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from nextgen.client.wire.errors import abort, to_detail
from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.limits.stream import WATCH_STALLED_MS_MAX
from nextgen.tasks.background import cancel_and_wait, join
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchUpdate


class Stalls(Protocol):
    """Called before and after each write: see ``discovery.service.watches.public_watch.Stalls``."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Watch(Protocol):
    """See ``discovery.service.watches.public_watch.Watch``."""

    error: MetadataError | None
    ended: asyncio.Event

    @property
    def stalls(self) -> Stalls: ...

    @property
    def sent(self) -> Mapping[int, int]: ...

    async def take(self) -> bytes: ...


async def serve_watch(watch: Watch, context: Any) -> None:
    """Serve ``watch`` to its end, or the caller's."""
    writing = join(_write(watch, context))
    ending = join(watch.ended.wait())
    try:
        await asyncio.wait({writing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            # The watcher may only be slow: then pending updates are sent, and the reason after
            # them.
            await asyncio.wait({writing}, timeout=WATCH_STALLED_MS_MAX / 1_000)
        if not writing.done():
            assert watch.error is not None, "it ended"
            await abort(context, _with_positions(watch.error, watch.sent))
        writing.result()
    finally:
        await cancel_and_wait(ending, writing)


async def _write(watch: Watch, context: Any) -> None:
    while True:
        try:
            encoded = await watch.take()
        except MetadataError as error:
            encoded = _last_update(error, watch.sent)
            await context.write(encoded)
            return
        watch.stalls.begin()
        await context.write(encoded)
        watch.stalls.end()


def _last_update(error: MetadataError, sent: Mapping[int, int]) -> bytes:
    return WatchUpdate(
        error=to_detail(_with_positions(error, sent)),
        positions=[
            ShardPosition(shard_id=shard_id, position=position)
            for shard_id, position in sorted(sent.items())
        ],
    ).SerializeToString()


def _with_positions(error: MetadataError, sent: Mapping[int, int]) -> MetadataError:
    """Return the error of a slow watcher with the place where it resumes."""
    if not isinstance(error, Overloaded) or not sent:
        return error
    places = ",".join(f"{shard_id}:{position}" for shard_id, position in sorted(sent.items()))
    return Overloaded(f"{error}; resume from {places}")
