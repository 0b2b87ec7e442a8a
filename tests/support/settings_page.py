"""``docs/settings.md``: the settings that change while the cluster runs, from their table.

python -m tests.support.settings_page --write
"""

from __future__ import annotations

import sys
from pathlib import Path

from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS, SUMMARIES

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
REGENERATE = (
    "run `.venv/bin/python -m tests.support.settings_page --write` and commit docs/settings.md"
)

_BEGIN = "<!-- settings: begin -->\n"
_END = "<!-- settings: end -->"
"""What is between these is made here; the text around it is written by hand."""


def page() -> str:
    """Return the page as it should be."""
    head, begin, rest = PAGE.read_text().partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    rows = [
        f"| `{name}` | {default} | {SUMMARIES[name]} |" for name, default in DEFAULT_TEXTS.items()
    ]
    table = "\n".join(["| setting | default | what |", "|---|---|---|", *rows])
    return f"{head}{begin}{table}\n{end}{tail}"


def main(arguments: list[str]) -> int:
    """Write or compare the page; return an exit code."""
    if arguments == ["--write"]:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() != page():
        print(f"docs/settings.md is stale: {REGENERATE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
