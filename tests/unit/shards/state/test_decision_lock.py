"""The lock of a shard's leader: no await between a read, the decision on it and its proposal."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import shards
from shards.state.command_outcomes import CommandOutcomes
from shards.state.proposer import Proposer
from shards.state.shard_slots import IdMint, ShardSlots
from shards.state.shard_state import ShardState
from shards.state.state_reads import StateReads
from shards.state.state_scans import StateScans

PARTS = (CommandOutcomes, IdMint, Proposer, ShardSlots, ShardState, StateReads, StateScans)

READERS = {"reads", "_reads", "scans", "_scans"}
PROPOSERS = {"proposer", "_proposer"}
PROPOSING_FUNCTIONS = {"record", "conclude"}
"""Of ``shards.inventory.command_answer``: they propose what was just decided."""

Place = tuple[int, int]


class Rule:
    """Finds awaits between the last read of a function and its proposal, in one module's source.

    A plain method that reads, or proposes, counts as a read or a proposal where it is called.
    """

    def __init__(self, source: str) -> None:
        self._functions = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        self._reading = self._closure(self._reads_itself)
        self._proposing = self._closure(self._proposes_itself)

    def proposals(self) -> int:
        return sum(1 for each in self._functions for _ in self._calls(each, self._is_proposal))

    def breaches(self) -> list[str]:
        found = []
        for function in self._functions:
            reads = sorted(self._calls(function, self._is_read))
            waits = [_wait_of(node) for node in _own_nodes(function) if isinstance(node, _WAITS)]
            exits = list(_exits(function))
            for proposal in self._calls(function, self._is_proposal):
                before = [read for read in reads if read < proposal]
                if before and any(
                    before[-1] < wait < proposal
                    and not any(start <= wait <= end < proposal for start, end in exits)
                    for wait in waits
                ):
                    found.append(f"{function.name}:{proposal[0]}")
        return found

    def _calls(self, function: ast.AST, wanted: object) -> Iterator[Place]:
        for node in _own_nodes(function):
            if isinstance(node, ast.Call) and wanted(node):  # type: ignore[operator]
                # Where the call ends: an await among its arguments comes before it.
                yield node.end_lineno or 0, node.end_col_offset or 0

    def _closure(self, is_itself: object) -> set[str]:
        """Return the names of plain functions that do something themselves or by another."""
        names: set[str] = set()
        while True:
            more = {
                function.name
                for function in self._functions
                if isinstance(function, ast.FunctionDef)
                and any(
                    is_itself(node) or _own_method(node) in names  # type: ignore[operator]
                    for node in _own_nodes(function)
                    if isinstance(node, ast.Call)
                )
            }
            if more <= names:
                return names
            names |= more

    def _is_read(self, call: ast.Call) -> bool:
        return self._reads_itself(call) or _own_method(call) in self._reading

    def _is_proposal(self, call: ast.Call) -> bool:
        return self._proposes_itself(call) or _own_method(call) in self._proposing

    @staticmethod
    def _reads_itself(call: ast.Call) -> bool:
        return bool(READERS & _chain(call.func))

    @staticmethod
    def _proposes_itself(call: ast.Call) -> bool:
        function = call.func
        if isinstance(function, ast.Name):
            return function.id in PROPOSING_FUNCTIONS
        return (
            isinstance(function, ast.Attribute)
            and function.attr == "propose"
            and bool(PROPOSERS & _chain(function.value))
        )


_WAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)


def _wait_of(node: ast.AST) -> Place:
    """Return where it waits: an await at its end, so that one of the proposal is behind that."""
    if isinstance(node, ast.Await):
        return node.end_lineno or 0, node.end_col_offset or 0
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _exits(function: ast.AST) -> Iterator[tuple[Place, Place]]:
    """Yield the blocks that leave the function or the loop: nothing behind them follows them."""
    for node in _own_nodes(function):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(node, ast.If | ast.ExceptHandler) and block:
                last = block[-1]
                if isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break):
                    first = block[0]
                    yield (
                        (first.lineno, first.col_offset),
                        (last.end_lineno or 0, last.end_col_offset or 0),
                    )


def _chain(node: ast.AST) -> set[str]:
    """Return the attributes of ``a.b.c``."""
    names = set()
    while isinstance(node, ast.Attribute):
        names.add(node.attr)
        node = node.value
    return names


def _own_method(call: ast.AST) -> str:
    """Return ``m`` of a call ``self.m(...)``, "" of another call."""
    function = getattr(call, "func", None)
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.attr if function.value.id == "self" else ""
    return ""


def test_parts_of_the_state_are_plain_functions_but_for_confirm() -> None:
    coroutines = {
        f"{part.__name__}.{name}"
        for part in PARTS
        for name, member in inspect.getmembers(part)
        if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
    }

    assert coroutines == {"Proposer.confirm"}


def test_nothing_is_awaited_between_a_read_and_the_proposal_that_rests_on_it() -> None:
    rules = {path: Rule(path.read_text()) for path in Path(shards.__path__[0]).rglob("*.py")}

    assert sum(rule.proposals() for rule in rules.values()) > 20, "the rule sees no proposals"
    assert {path.name: rule.breaches() for path, rule in rules.items() if rule.breaches()} == {}


@pytest.mark.parametrize(
    "body",
    [
        "before = state.reads.load_tenant(name)\n await pause()\n state.proposer.propose(before)",
        "before = self.look()\n await pause()\n state.proposer.propose(before)",
        "before = state.scans.usage()\n state.proposer.propose([await decide(before)])",
        "before = state.reads.load_gate(name)\n async with turn:\n  record(state, before)",
        "before = state.reads.load_gate(name)\n await pause()\n self.write(before)",
    ],
)
def test_an_await_before_the_proposal_is_found(body: str) -> None:
    helpers = (
        "def look(self):\n return self._reads.load_topic('x')\n"
        "def write(self, events):\n self._proposer.propose(events)\n"
    )

    assert Rule(f"{helpers}async def decide(self, state):\n {body}\n").breaches()
    plain = body.replace("await ", "").replace("async with", "with")
    assert not Rule(f"{helpers}async def decide(self, state):\n {plain}\n").breaches()


def test_an_await_on_a_way_out_is_none_before_the_proposal() -> None:
    source = (
        "async def grant(self):\n"
        " before = self._reads.load_session('b')\n"
        " if before is None:\n"
        "  await self._proposer.confirm()\n"
        "  raise KeyError\n"
        " self._proposer.propose([before])\n"
    )

    assert not Rule(source).breaches()
    assert Rule(source.replace("  raise KeyError\n", "")).breaches()
