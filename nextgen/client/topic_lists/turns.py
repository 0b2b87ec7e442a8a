"""Work of one list in turns with everything else that the event loop does."""

from __future__ import annotations

import asyncio

from nextgen.kernel.limits.listing import PATTERN_MATCHING_TURN_MS


class Turns:
    """Gives the loop's other work a turn after ``PATTERN_MATCHING_TURN_MS``."""

    __slots__ = ("_clock", "_until")

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + PATTERN_MATCHING_TURN_MS / 1_000

    async def end(self) -> None:
        if self._clock() >= self._until:
            await asyncio.sleep(0)
            self._until = self._clock() + PATTERN_MATCHING_TURN_MS / 1_000
