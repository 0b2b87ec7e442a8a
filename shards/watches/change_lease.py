"""A leased watch: the assignments' feed, told through a change stream.

What the subscriber knows has a time-to-live, and moves wait for its acknowledgements: the promises
are those of ``AssignmentFeed`` (ADR 0029), whichever stream carries them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import ASSIGNMENT_UPDATE_MS
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout_at
from protos.nextgen.v1.shard_service_pb2 import WatchRenew, WatchShardUpdate
from shards.watches.assignment_feed import LeasedCursor

_UPDATE_SECONDS = ASSIGNMENT_UPDATE_MS / 1000


class LeasedWatch:
    """One subscription to the assignments' feed as a watch. ``close`` it.

    ``wake`` is called when ``take_update`` has something new.
    """

    def __init__(
        self,
        watch_id: int,
        subscription: LeasedCursor,
        wake: Callable[[], None],
        *,
        is_resumed: bool,
    ) -> None:
        self.watch_id = watch_id
        self._subscription = subscription
        self._wake = wake
        self._is_resumed = is_resumed
        self._is_due = True
        self._taken = asyncio.Event()
        self._confirming = keep("change_lease", self._confirm)

    def renew(self, renew: WatchRenew) -> None:
        """Take in what the subscriber says of itself."""
        self._subscription.asked_at_ms = renew.asked_at_ms
        self._subscription.acknowledge(renew.acked_position)

    def take_update(self) -> WatchShardUpdate | None:
        """Return what is to be sent at this moment, None for nothing.

        Raises:
            MetadataError: The watch has ended, for example as this replica does not lead any more.
        """
        if not self._is_due:
            return None
        self._is_due = False
        self._taken.set()
        update = self._subscription.take_update()
        update.watch_id = self.watch_id
        # Without a position to resume from it begins with the present and knows nothing before.
        update.reset = update.reset or not self._is_resumed
        update.names_creations = self._subscription.names_creations
        self._is_resumed = True
        return update

    def close(self) -> None:
        """End the subscription; what the subscriber knows counts for one time-to-live more."""
        self._confirming.cancel()
        self._subscription.close()

    async def _confirm(self) -> None:
        """Let an update be due whenever there is a delta, and after each confirmation."""
        loop = asyncio.get_running_loop()
        confirm_at = loop.time()
        while True:
            if loop.time() >= confirm_at:
                try:
                    await self._subscription.confirm()
                except MetadataError as error:
                    self._subscription.fail(error)
                confirm_at = loop.time() + _UPDATE_SECONDS
            self._taken.clear()
            self._is_due = True
            self._wake()
            await self._taken.wait()
            with contextlib.suppress(TimeoutError):
                async with timeout_at(confirm_at):
                    await self._subscription.changed.wait()
