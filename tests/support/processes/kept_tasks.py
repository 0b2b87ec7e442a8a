"""Finds and breaks what ``nextgen.tasks.background.keep`` carries out, to see it begin again."""

from __future__ import annotations

import asyncio
import re

from nextgen.tasks.background import KEPT
from tests.unit.test_tidy import SOURCES


def kept_tasks() -> dict[str, list[asyncio.Task[None]]]:
    """Return the attempts that run at the moment in the running loop, by name."""
    found: dict[str, list[asyncio.Task[None]]] = {}
    for task in asyncio.all_tasks():
        before, _, name = task.get_name().partition(KEPT)
        if name and not before:
            found.setdefault(name, []).append(task)
    return found


def break_kept(name: str) -> list[asyncio.Task[None]]:
    """Cancel every attempt called ``name`` without a stop request; return them."""
    attempts = kept_tasks().get(name, [])
    assert attempts, f"no {name} runs"
    for attempt in attempts:
        attempt.cancel()
    return attempts


def has_begun_again(name: str, broken: list[asyncio.Task[None]]) -> bool:
    """Say whether there are as many attempts again as were broken."""
    return len(set(kept_tasks().get(name, ())) - set(broken)) >= len(broken)


def names_of_kept_tasks() -> set[str]:
    """Return every name that the project's processes call ``keep`` with."""
    calls = re.compile(r'\bkeep\(\s*"(\w+)"')
    where = [path for path in SOURCES if path.parent.name != "tasks"]
    return {name for path in where for name in calls.findall(path.read_text())}
