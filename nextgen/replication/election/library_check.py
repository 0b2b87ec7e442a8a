"""The check, at start, that pysyncobj is the library that our overrides were written for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from pysyncobj import SyncObj

from nextgen.kernel.errors import RefusesToStart

LIBRARY_VERSION = "0.3.17"
"""The one version whose private members were read and overridden."""

EXPECTED_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "_SyncObj__onBecomeLeader": ("self",),
    "_SyncObj__generateRaftTimeout": ("self",),
    "_SyncObj__sendAppendEntries": ("self",),
    "_SyncObj__applyLogEntries": ("self",),
    "_SyncObj__tryLogCompaction": ("self",),
    "_SyncObj__onMessageReceived": ("self", "node", "message"),
    "_SyncObj__onNodeConnected": ("self", "node"),
    "_SyncObj__onNodeDisconnected": ("self", "node"),
    "_SyncObj__setCurrentTerm": ("self", "term", "votedForNodeId"),
    "_SyncObj__setState": ("self", "newState"),
    "_checkCommandsToApply": ("self",),
    "_onTick": ("self", "timeToWait"),
}
"""Every member that we override or call, with its parameters."""

EXPECTED_ATTRIBUTES = (
    "__raftLog",
    "__raftState",
    "__raftLeader",
    "__raftCurrentTerm",
    "__votedForNodeId",
    "__raftElectionDeadline",
    "__otherNodes",
    "__votesCount",
)
"""Every attribute that we read or set, as the library's source spells it."""


def check_library() -> None:
    """Refuse to run with any other pysyncobj.

    Raises:
        RefusesToStart: The version, a member or its parameters differ.
    """
    found = version("pysyncobj")
    if found != LIBRARY_VERSION:
        raise RefusesToStart(
            f"pysyncobj {found} is installed, this release needs exactly {LIBRARY_VERSION}: "
            f"install the pinned requirements"
        )
    problems = list_differences(SyncObj)
    if problems:
        raise RefusesToStart(f"pysyncobj is not the expected library: {'; '.join(problems)}")


def list_differences(library_class: type) -> list[str]:
    """Return one sentence per member of ``library_class`` that is not as expected."""
    problems = []
    for name, parameters in EXPECTED_MEMBERS.items():
        member = inspect.getattr_static(library_class, name, None)
        if not inspect.isfunction(member):
            problems.append(f"{name} is missing")
        elif tuple(inspect.signature(member).parameters) != parameters:
            problems.append(f"{name} has other parameters")
    try:
        source = _source_of(library_class)
    except OSError:
        return [*problems, "its source cannot be read"]
    problems += [
        f"the attribute {name} is missing"
        for name in EXPECTED_ATTRIBUTES
        if f"self.{name} = " not in source
    ]
    return problems


@cache
def _source_of(library_class: type) -> str:
    # Parsed once: in a process with many hosts, as tests have, it would be the longest step.
    return inspect.getsource(library_class)
