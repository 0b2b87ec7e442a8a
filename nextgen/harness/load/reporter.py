"""The messages of a job to the process that started it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

PROGRESS_INTERVAL_MS = 100
COMMANDS_MAX = 1_000
"""Commands that the job has not taken yet. Beyond it the pipe fills and the sender waits."""


class Reporter:
    """``stopping`` is set when the job is to finish early; ``commands`` has all other commands."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue(COMMANDS_MAX)
        self._done = 0
        self._told_at = 0.0

    def send(self, message: dict[str, Any]) -> None:
        """Write one line at once."""
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def advance(self, count: int) -> None:
        """Count work as done. Reports at most once in PROGRESS_INTERVAL_MS."""
        self._done += count
        now = asyncio.get_running_loop().time()
        if (now - self._told_at) * 1000 >= PROGRESS_INTERVAL_MS:
            self._told_at = now
            self.send({"progress": self._done})
