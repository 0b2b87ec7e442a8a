"""``docs/rest.md``: the policies of the Admin REST, from their table.

python -m tests.support.rest_page --write
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from discovery.adapters.administration.policy_table import POLICIES, UNSET, Policy

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
REGENERATE = "run `.venv/bin/python -m tests.support.rest_page --write` and commit docs/rest.md"

_BEGIN = "|---|---|---|---|---|---|\n"
"""The line above the table's rows."""
_END = "| `backlogQuotaMap`"
"""The rows from here on, and the text around the table, are written by hand."""


def page() -> str:
    """Return the page as it should be."""
    head, begin, rest = PAGE.read_text().partition(_BEGIN)
    rows = "".join(f"{_row(policy)}\n" for policy in POLICIES)
    return head + begin + rows + rest[rest.index(_END) :]


def _row(policy: Policy) -> str:
    removed = "-" if policy.removed_at is None else "DELETE"
    if policy.removed_at:
        removed += f" `{policy.removed_at}`"
    unset = "204" if policy.unset is UNSET else f"`{json.dumps(policy.unset)}`"
    here = "**enforced**" if policy.enforced is not None else "stored"
    what = f"{policy.summary}. {policy.note}" if policy.note else policy.summary
    return f"| `{policy.name}` | {policy.set_by} | {removed} | {unset} | {here} | {what} |"


def main(arguments: list[str]) -> int:
    """Write or compare the page; return an exit code."""
    if arguments == ["--write"]:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() != page():
        print(f"docs/rest.md is stale: {REGENERATE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
