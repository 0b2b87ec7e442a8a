"""Which producers connected again, and when, by the log of the stock client."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

LINE = re.compile(
    r"^(?P<at>\S+ \S+) .*\[(?P<topic>(?:non-)?persistent://[^,\]]+), .*Created producer on broker"
)


@dataclass(frozen=True, slots=True)
class Connected:
    """A producer that a broker took, in seconds of the machine's monotonic clock."""

    at_s: float
    topic: str


def connected_in(log: Path) -> list[Connected]:
    """Return every time that a producer was taken by a broker, its first one too."""
    booted_s = time.time() - time.monotonic()
    found = map(LINE.match, log.read_text("utf-8", "replace").splitlines())
    return [
        # The client writes local time, as ``timestamp`` takes a date without a zone.
        Connected(datetime.fromisoformat(each["at"]).timestamp() - booted_s, each["topic"])
        for each in found
        if each is not None
    ]
