"""Runs ``nextgen demo`` and keeps what it printed: ``make demo-recording``.

``docs/demo.cast`` has the output with its times (asciicast, version 2: `asciinema play` shows it).
``docs/demo.svg`` is the picture of it at the top of the README: its lines appear as they did,
``SPEED`` times as fast. Nothing is written if the demo fails. ``--draw`` draws the picture anew.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
CAST = ROOT / "docs" / "demo.cast"
PICTURE = ROOT / "docs" / "demo.svg"
COLUMNS = 112
SPEED = 4.0
COMMAND = "make demo"

_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px FONT; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
.{unique_id}-matrix text {{ animation: shown 0.2s backwards; }}
@keyframes shown {{ from {{ opacity: 0; }} }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
""".replace("FONT", _FONT)


def main() -> None:
    """Record, then draw; with ``--draw`` only draw."""
    if sys.argv[1:] != ["--draw"]:
        CAST.write_text(recorded())
    PICTURE.write_text(drawn(CAST.read_text()))


def recorded() -> str:
    """Return the recording of a run of the demo.

    Raises:
        SystemExit: The demo failed.
    """
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm"}
    began_at, lines = time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "nextgen", "demo"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            sys.stdout.write(line)
            lines.append([round(time.monotonic() - began_at, 3), "o", line.replace("\n", "\r\n")])
    if demo.returncode:
        raise SystemExit(demo.returncode)
    header = {"version": 2, "width": COLUMNS, "height": len(lines) + 1, "title": COMMAND}
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in [header, *lines])


def drawn(cast: str) -> str:
    """Return the picture of a recording. The last line, JSON for programs, is not in it."""
    _, *events = map(json.loads, cast.splitlines())
    lines = [(0.0, f"$ {COMMAND}")]
    lines += [(at / SPEED, text.rstrip("\r\n")) for at, _, text in events]
    if lines[-1][1].startswith("{"):
        lines.pop()
    shown = [Text.from_ansi(text) for _, text in lines]
    width = max(line.cell_len for line in shown)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    for line in shown:
        console.print(line, soft_wrap=True)
    picture = console.export_svg(title=COMMAND, code_format=_FRAME, unique_id="demo")

    def delayed(found: re.Match[str]) -> str:
        at = lines[min(int(found[1]), len(lines) - 1)][0]
        return f'style="animation-delay:{at:.1f}s" clip-path="url(#demo-line-{found[1]})"'

    return re.sub(r'clip-path="url\(#demo-line-(\d+)\)"', delayed, picture)


if __name__ == "__main__":
    main()
