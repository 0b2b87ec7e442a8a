"""What a person sees of the demo: one line per thing that happened, and a pulse."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.status import Status
from rich.table import Table

PLAIN_PULSE_SECONDS = 5
"""Where no line can be redrawn, the pulse is printed this often."""


class Timeline:
    """Writes to stdout; with ``is_quiet`` it writes nothing."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._console = Console(quiet=is_quiet, highlight=False)
        self._began_at = time.monotonic()
        self._status: Status | None = None
        self._pulsed_at = 0.0
        self._is_live = sys.stdout.isatty() and not is_quiet

    def title(self, text: str) -> None:
        self._console.print(Panel.fit(text, border_style="cyan"))

    def happened(self, sign: str, text: str, style: str = "") -> None:
        """Print one line with the time since the demo began."""
        seconds = time.monotonic() - self._began_at
        styled = f"[{style}]{text}[/{style}]" if style else text
        self._console.print(f"[dim]{seconds:6.1f}s[/dim]  {sign}  {styled}", soft_wrap=True)

    def pulse(self, tick: dict[str, Any]) -> None:
        """Show how the traffic is doing at the moment."""
        wrong = tick.get("wrong", 0)
        text = (
            f"{tick.get('created', 0):,} topics · {tick.get('lookups', 0):,} lookups · "
            f"{wrong} wrong · {tick.get('asked_again', 0):,} asked again · "
            f"wait p50 {tick.get('wait_p50', 0):.1f} ms, longest {tick.get('wait_max', 0):.0f} ms"
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
        """Take the pulse away; call it at the end."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def verdict(self, result: dict[str, Any], *, is_good: bool) -> None:
        """Print the numbers and what they mean."""
        table = Table.grid(padding=(0, 2))
        for name, value in (
            ("topics created and acknowledged", f"{result['created']:,}"),
            ("of them lost", result["lost"]),
            ("lookups, each checked at its broker", f"{result['lookups']:,}"),
            ("wrong answers", result["wrong"]),
            ("not answered within 10 s", result["failed_after_retry"]),
            ("longest wait of a lookup", f"{result['max_gap_ms']:,} ms"),
            ("leaders replaced", result["leader_failovers"]),
        ):
            table.add_row(name, f"[bold]{value}[/bold]")
        self._console.print(Panel.fit(table, border_style="green" if is_good else "red"))
        for example in result.get("examples", []):
            self._console.print(f"[red]{example}[/red]", markup=True)
