"""Who may do what: the tests' cases and, as a table, the documentation's.

python -m tests.support.permissions.cases --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.access_rules import NOTHING, AccessFacts, AccessRules, may
from nextgen.kernel.governance.permissions import AuthAction, Permission
from nextgen.kernel.governance.policies import NO_POLICIES, Policies

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "security.md"
BEGIN, END = "<!-- who may do what: begin -->", "<!-- who may do what: end -->"

ROLE = "ada"
RULES = AccessRules(frozenset({"root"}))


def given(*actions: AuthAction) -> Policies:
    return Policies(permissions=(Permission(ROLE, actions),))


_PRODUCE, _CONSUME = given(AuthAction.PRODUCE), given(AuthAction.CONSUME)
_ADMIN = frozenset({ROLE})

HOLDERS: dict[str, AccessFacts] = {
    "any role": NOTHING,
    "admin of the tenant": AccessFacts(_ADMIN, NO_POLICIES, NO_POLICIES),
    "produce on the namespace": AccessFacts(frozenset(), _PRODUCE, NO_POLICIES),
    "consume on the namespace": AccessFacts(frozenset(), _CONSUME, NO_POLICIES),
    "produce on the topic": AccessFacts(frozenset(), NO_POLICIES, _PRODUCE),
    "consume on the topic": AccessFacts(frozenset(), NO_POLICIES, _CONSUME),
}
"""What a role that is no superuser may have, alone."""


def allowed(kind: ResourceKind, action: Action) -> list[str]:
    """Return which of ``HOLDERS`` may do ``action`` on a resource of ``kind``."""
    return [name for name, facts in HOLDERS.items() if may(RULES, [ROLE], action, kind, facts)]


def rows() -> Iterator[str]:
    yield "| on | action | " + " | ".join(HOLDERS) + " |"
    yield "|---" * (2 + len(HOLDERS)) + "|"
    for kind in ResourceKind:
        lines: dict[tuple[bool, ...], list[str]] = {}
        for action in Action:
            if action is Action.CONNECT and kind is not ResourceKind.CLUSTER:
                continue
            may_do = allowed(kind, action)
            lines.setdefault(tuple(name in may_do for name in HOLDERS), []).append(action)
        for marks, actions in lines.items():
            shown = " | ".join("yes" if mark else "" for mark in marks)
            yield f"| {kind} | {', '.join(actions)} | {shown} |"


def table() -> str:
    return "\n".join(rows())


def page_with_table(page: str) -> str:
    """Return ``page`` with the table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE} has lost the mark {BEGIN}"
    assert end, f"{PAGE} has lost the mark {END}"
    return f"{before}{begin}\n{table()}\n{end}{after}"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m tests.support.permissions.cases --write")
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
