"""``docs/rest.md``: the policies of the Admin REST, from their tables.

python -m tests.support.rest_page --write
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from discovery.adapters.administration.topic_policies import TOPIC_POLICIES
from nextgen.pulsar.policies.policy_table import POLICIES, UNSET, Policy

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"
REGENERATE = "run `.venv/bin/python -m tests.support.rest_page --write` and commit docs/rest.md"

_BEGIN = "|---|---|---|---|---|---|\n"
_BEGIN_OF_TOPICS = "|---|---|---|---|---|\n"
"""The line above a table's rows."""
_END = "| `backlogQuotaMap`"
"""The rows from here on, and the text around the tables, are written by hand."""


def page() -> str:
    """Return the page as it should be."""
    text = _with_rows(PAGE.read_text(), _BEGIN, map(_row, POLICIES))
    head, begin, rest = text.partition(f"\n{_BEGIN_OF_TOPICS}")
    return head + "\n" + _with_rows(begin[1:] + rest, begin[1:], map(_topic_row, TOPIC_POLICIES))


def _with_rows(text: str, above: str, rows: Iterable[str]) -> str:
    head, begin, rest = text.partition(above)
    return head + begin + "".join(f"{row}\n" for row in rows) + rest[rest.index(_END) :]


def _topic_row(policy: Policy) -> str:
    set_by = f"{policy.set_by} `?{policy.name}=`" if policy.is_in_query else policy.set_by
    removed = "-" if policy.removed_at is None else "DELETE"
    here = "**enforced**" if policy.enforced is not None or policy.is_acted_on else "stored"
    same = f"`{policy.stored_as}`" if policy.stored_as else "-"
    return f"| `{policy.name}` | {set_by} | {removed} | {here} | {same} |"


def _row(policy: Policy) -> str:
    removed = "-" if policy.removed_at is None else "DELETE"
    if policy.removed_at:
        removed += f" `{policy.removed_at}`"
    unset = "204" if policy.unset is UNSET else f"`{json.dumps(policy.unset)}`"
    here = "**enforced**" if policy.enforced is not None or policy.is_acted_on else "stored"
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
