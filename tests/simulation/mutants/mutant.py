"""A guard, and how to remove it: an exact replacement in the source of a function, in memory only.

When the words that a mutant replaces are not there any more it raises ``GuardMoved``: a guard that
was rewritten has to be found again, or it would go on being shown without being removed.
"""

from __future__ import annotations
import __future__

import contextlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.simulation.report import Kind

_OURS = ("nextgen.", "shards.", "cluster_manager.", "discovery.", "brokers.", "tests.")


@dataclass(frozen=True, slots=True)
class Edit:
    """``old``, which occurs once in the source of ``owner.name``, becomes ``new``."""

    owner: type | ModuleType
    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guard and its removal. At least one of ``tests`` fails by it, or a seed does."""

    name: str
    invariant: str
    guard: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    """Files or tests, as pytest takes them."""
    seeds: tuple[tuple[Kind, int], ...] = ()
    """The simulations that are to notice, and how many seeds of each are tried, from 1 on."""


class GuardMoved(AssertionError):
    """The words of a guard are not in the source any more: the mutant has to be written anew."""


@contextlib.contextmanager
def removed(mutant: Mutant) -> Iterator[None]:
    """Run without the guard; afterwards everything is as it was."""
    swaps = [
        (owner, name, original, _mutated(original, edits))
        for (owner, name), edits in _by_function(mutant).items()
        for original in (inspect.getattr_static(owner, name),)
    ]
    try:
        for owner, name, original, mutated in swaps:
            _swap(owner, name, original, mutated)
        yield
    finally:
        for owner, name, original, mutated in reversed(swaps):
            _swap(owner, name, mutated, original)


def _by_function(mutant: Mutant) -> dict[tuple[type | ModuleType, str], list[Edit]]:
    found: dict[tuple[type | ModuleType, str], list[Edit]] = {}
    for edit in mutant.edits:
        found.setdefault((edit.owner, edit.name), []).append(edit)
    return found


def _swap(owner: type | ModuleType, name: str, present: object, other: object) -> None:
    """Put ``other`` where ``present`` is: at its owner, and where it was imported by its name."""
    setattr(owner, name, other)
    for module in tuple(sys.modules.values()):
        if module.__name__.startswith(_OURS) and module.__dict__.get(name) is present:
            setattr(module, name, other)


def _mutated(original: Any, edits: list[Edit]) -> Any:
    function = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        if source.count(edit.old) != 1:
            raise GuardMoved(f"{edit.name} has {edit.old!r} {source.count(edit.old)} times")
        source = source.replace(edit.old, edit.new)
    flags = __future__.annotations.compiler_flag
    code = compile(source, f"<mutant of {function.__qualname__}>", "exec", flags)
    namespace: dict[str, Any] = {}
    exec(code, function.__globals__, namespace)
    return namespace[function.__name__]
