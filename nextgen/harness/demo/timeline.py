"""The demo's output for people: one line per step, and a status line of the traffic."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.status import Status
from rich.table import Table
from rich.text import Text

from nextgen.kernel.input.printable import printable

PLAIN_PULSE_SECONDS = 5
"""Interval of the status line on an output that cannot redraw lines."""


class Timeline:
    """Writes to stdout; with ``is_quiet`` it writes nothing."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(quiet=is_quiet, highlight=False, markup=False, emoji=False)
        self._began_at = time.monotonic()
        self._status: Status | None = None
        self._pulsed_at = 0.0
        self._is_live = sys.stdout.isatty() and not is_quiet

    def title(self, text: str) -> None:
        self._console.print(Panel.fit(text, border_style="cyan"))

    def happened(self, sign: str, text: str, style: str = "") -> None:
        """Print one line with the time since the demo began."""
        seconds = time.monotonic() - self._began_at
        line = Text.assemble((f"{seconds:6.1f}s", "dim"), f"  {sign}  ", (printable(text), style))
        self._console.print(line, soft_wrap=True)

    def pulse(self, tick: dict[str, Any]) -> None:
        """Show the present state of the traffic."""
        text = (
            f"{tick.get('sent', 0):,} sends acknowledged, {tick.get('in_flight', 0):,} in flight · "
            f"{tick.get('received', 0):,} received, {tick.get('redelivered', 0):,} again · "
            f"{tick.get('out_of_order', 0)} out of order, "
            f"{tick.get('stored_twice', 0)} stored twice"
        )
        if self._is_live:
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text)
        elif time.monotonic() - self._pulsed_at >= PLAIN_PULSE_SECONDS:
            self._pulsed_at = time.monotonic()
            self.happened("·", text, "dim")

    def stop_pulse(self) -> None:
        """Remove the status line; call it at the end."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def verdict(self, result: dict[str, Any], *, is_good: bool) -> None:
        """Print the numbers with their meanings."""
        table = Table.grid(padding=(0, 2))
        for name, value in (
            ("sends acknowledged", f"{result['sent']:,}"),
            ("messages received", f"{result['received']:,}"),
            ("of them also at shadows", f"{result['received_at_shadows']:,}"),
            ("lost", result["lost"]),
            ("duplicated", result["duplicated"]),
            ("out of order", result["out_of_order"]),
            ("redelivered, their acknowledgement died", result["redelivered"]),
            ("in flight when the broker was killed", result["in_flight_at_kill"]),
            ("longest gap of its producers", f"{result['broker_gap_ms']:,} ms"),
            ("longest wait of any producer", f"{result['max_publish_gap_ms']:,} ms"),
            ("leaders replaced", result["leader_failovers"]),
        ):
            table.add_row(name, Text(str(value), "bold"))
        self._console.print(Panel.fit(table, border_style="green" if is_good else "red"))
        for example in [*result["complaints"], *result["examples"]]:
            self._console.print(Text(printable(str(example)), "red"))
