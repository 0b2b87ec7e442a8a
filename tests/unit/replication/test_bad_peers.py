"""What a peer may not make this process do: execute what it sends, or believe a clock."""

from __future__ import annotations

import ast
import asyncio
import pickle
import time
from pathlib import Path
from typing import Any, NoReturn

import msgpack
import pysyncobj.pickle
import pytest

import nextgen.replication
from nextgen.replication.mesh.frames import RemoteProtocolError, decode_frame, parse_hello
from nextgen.replication.protocol.messages import check_message
from tests.support.scenarios import run_by
from tests.support.simulated.raft import RaftSimulation
from tests.unit.replication.test_group import log_of, others_than, propose, simulated

PACKAGE = Path(nextgen.replication.__file__).parent
ROOT = PACKAGE.parents[1]
EXECUTING_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
SPEAKING_MODULES = {"pysyncobj.pickle", "pysyncobj.transport", "pysyncobj.tcp_connection"}

CLOCKS = {
    "nextgen/runtime",  # Time stamps of the diagnostics.
    "nextgen/cli",  # What people read.
    "nextgen/harness",  # The same, and when a recorded call began.
    "nextgen/backup",  # When a backup was made, for people.
    "nextgen/export",  # Lag in seconds, and the lease of an object store that has no lock.
    "nextgen/pulsar",  # Publish times, which are the clients'.
    "brokers",  # The same, and delayed delivery, which clients ask for by wall clock.
    "shards/adapters/loop_clock.py",  # Stamped into records for people; nothing is ordered by it.
    "cluster_manager/adapters/loop_clock.py",
    "discovery/bootstrap",  # Which minute a lookup counts in; durations go by the other clock.
}
"""Where a wall clock may be read."""


EXPLODED: list[str] = []


def explode(text: str) -> None:
    EXPLODED.append(text)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return explode, ("bang",)


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{each.name}" for each in node.names)
    return names


def _wall_clock_calls(path: Path) -> list[str]:
    """Return where a module reads a wall clock."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute) or not isinstance(
            node.value, ast.Name | ast.Attribute
        ):
            continue
        owner = ast.unparse(node.value)
        if (owner == "time" and node.attr in {"time", "time_ns"}) or (
            owner.split(".")[-1] in {"datetime", "date"} and node.attr in {"now", "utcnow", "today"}
        ):
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_the_engine_imports_nothing_that_executes_what_it_reads(path: Path) -> None:
    assert not _imports(path) & (EXECUTING_MODULES | SPEAKING_MODULES) - {"pysyncobj.transport"}


def test_the_librarys_transport_is_used_as_an_interface_only() -> None:
    users = [p for p in PACKAGE.rglob("*.py") if "pysyncobj.transport" in _imports(p)]

    assert users == [PACKAGE / "election" / "overrides.py"]
    source = users[0].read_text(encoding="utf-8")
    assert "TCPTransport" not in source


def test_a_group_elects_commits_and_hands_over_without_unpickling_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_named: object) -> NoReturn:
        raise AssertionError("something is unpickled")

    for module in (pickle, pysyncobj.pickle):
        for name in ("loads", "load", "Unpickler"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, refuse)

    async def scenario(simulation: RaftSimulation) -> None:
        leader = await simulation.leader()
        follower = others_than(simulation, leader)[0]
        for number in range(20):
            await propose(leader, f"{number}")
        await log_of(leader).read_index()
        await log_of(leader).transfer_leadership(follower.node_id)
        successor = await simulation.leader()
        commit = await propose(successor, "last")
        leader.crash()
        await leader.start()
        await log_of(leader).wait_applied(commit.index)

    simulated(scenario)


@pytest.mark.parametrize(
    "content",
    [
        (3, {"type": "append_entries", "term": 9, "transmission": "finish", "data": b"<bomb>"}),
        (3, {"type": "append", "term": 9, "entries": [[1, 1, 1, 0, b"<bomb>"]]}),
        (3, {"type": "apply_command", "command": b"<bomb>"}),
        (3, {"type": b"<bomb>"}),
        (-1, {"magic": b"<bomb>"}),
        b"<bomb>",
    ],
)
def test_a_pickle_in_any_place_is_refused_as_data(content: Any) -> None:
    bomb = pickle.dumps(Bomb())

    def armed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: armed(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [armed(each) for each in value]
        return bomb if value == b"<bomb>" else value

    def receive(body: bytes) -> None:
        channel, message = decode_frame(body)
        if channel < 0:
            parse_hello(channel, message)
        check_message(message)

    EXPLODED.clear()
    with pytest.raises(RemoteProtocolError):
        receive(msgpack.packb(armed(content)))

    assert EXPLODED == []
    pickle.loads(bomb)
    assert EXPLODED == ["bang"], "the bomb was a real one"


def test_wall_clocks_are_read_in_a_few_places_only() -> None:
    """Elections, leases, sessions and outcomes go by monotonic clocks and by positions."""
    found = [
        call
        for folder in ("nextgen", "shards", "cluster_manager", "discovery", "brokers")
        for path in (ROOT / folder).rglob("*.py")
        for call in _wall_clock_calls(path)
    ]

    strangers = [each for each in found if not each.startswith(tuple(CLOCKS))]
    assert strangers == []
    assert any(each.startswith("shards/adapters/loop_clock.py") for each in found)


@pytest.mark.parametrize("leap_s", [3_600, -3_600])
@run_by(simulated)
async def test_a_wall_clock_that_leaps_by_an_hour_elects_nobody_and_stops_no_commit(
    simulation: RaftSimulation, *, leap_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await simulation.leader()
    term = log_of(leader).status.term
    real_s, real_ns = time.time(), time.time_ns()
    monkeypatch.setattr(time, "time", lambda: real_s + leap_s)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns + leap_s * 10**9)

    for number in range(10):
        await propose(leader, f"{number}")
        await log_of(leader).read_index()
        await asyncio.sleep(1)

    assert log_of(leader).is_leader
    assert log_of(leader).status.term == term
