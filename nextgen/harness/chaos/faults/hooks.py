"""Commands of an operator that break and mend one of the cluster's nodes.

    timeout_ms = 20000

    [kill]
    begin = "ssh {node} systemctl kill --signal=KILL nextgen"
    end = "ssh {node} systemctl start nextgen"

    [partition]
    groups = ["shard-node", "broker"]
    begin = "isolate --host {node}"
    end = "rejoin --host {node}"

A file is TOML or, if its name ends in .json, JSON. ``{node}`` is the node's id, ``{grpc}`` its
address, ``{group}`` its kind; for ``restart_all`` ``{node}`` is "all". No shell is involved: a
command is split into words, and each placeholder's value stays one word.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nextgen.harness.chaos.schedule import OF_CLUSTER, FaultKind, Group
from nextgen.kernel.errors import DeadlineExceeded, RefusesToStart, Unavailable
from nextgen.kernel.input.json_fields import parse_json
from nextgen.tasks.timeouts import timeout

HOOK_TIMEOUT_DEFAULT_MS = 20_000
HOOK_TIMEOUT_MS_MAX = 600_000
HOOKS_FILE_BYTES_MAX = 64 * 1024
OUTPUT_TOLD_CHARACTERS = 300
_PLACEHOLDERS = ("node", "grpc", "group")


@dataclass(frozen=True, slots=True)
class Hook:
    """The commands that make and undo one kind of fault."""

    begin: tuple[str, ...]
    end: tuple[str, ...]
    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The content of an operator's file."""

    by_kind: Mapping[FaultKind, Hook]
    timeout_ms: int = HOOK_TIMEOUT_DEFAULT_MS


def load_hooks(path: Path) -> Hooks:
    """Read a file of hooks.

    Raises:
        RefusesToStart: It cannot be read, or has an unknown or invalid field.
    """
    try:
        content = path.read_bytes()
        if len(content) > HOOKS_FILE_BYTES_MAX:
            raise RefusesToStart(f"{path} has more than {HOOKS_FILE_BYTES_MAX} bytes")
        text = content.decode()
        document = parse_json(text) if path.suffix == ".json" else tomllib.loads(text)
        return hooks_of(document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RefusesToStart(f"{path} is not a file of fault hooks: {error}") from error


def hooks_of(document: Mapping[str, Any]) -> Hooks:
    """Parse a document. Raises ValueError, TypeError or KeyError for an invalid one."""
    timeout_ms = document.get("timeout_ms", HOOK_TIMEOUT_DEFAULT_MS)
    if not isinstance(timeout_ms, int) or not 1 <= timeout_ms <= HOOK_TIMEOUT_MS_MAX:
        raise ValueError(f"timeout_ms is {timeout_ms!r}, it must be 1 to {HOOK_TIMEOUT_MS_MAX}")
    by_kind = {
        _kind_of(name): _hook_of(name, given)
        for name, given in document.items()
        if name != "timeout_ms"
    }
    return Hooks(by_kind, timeout_ms)


def _kind_of(name: str) -> FaultKind:
    if name not in OF_CLUSTER:
        raise ValueError(f"{name!r} is no kind of fault, they are {', '.join(OF_CLUSTER)}")
    return FaultKind(name)


def _hook_of(name: str, given: Mapping[str, Any]) -> Hook:
    strange = given.keys() - {"begin", "end", "groups"}
    if strange:
        raise ValueError(f"{name} has unknown fields: {', '.join(sorted(strange))}")
    groups = given.get("groups", [group.value for group in Group])
    return Hook(
        _command_of(given["begin"]),
        _command_of(given["end"]),
        frozenset(Group(group) for group in groups),
    )


def _command_of(text: object) -> tuple[str, ...]:
    if not isinstance(text, str) or not shlex.split(text):
        raise ValueError(f"{text!r} is no command")
    words = tuple(shlex.split(text))
    for word in words:
        word.format(**dict.fromkeys(_PLACEHOLDERS, ""))
    return words


async def run_hook(words: tuple[str, ...], values: Mapping[str, str], *, timeout_ms: int) -> None:
    """Run a command with its placeholders filled in.

    Raises:
        Unavailable: The command cannot be run, or failed by its exit code.
        DeadlineExceeded: The command took too long and was killed.
    """
    command = [word.format(**values) for word in words]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be run: {error}") from error
    try:
        async with timeout(timeout_ms / 1000):
            output, _ = await process.communicate()
    except TimeoutError:
        raise DeadlineExceeded(f"{shlex.join(command)} took longer than {timeout_ms} ms") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        tail = output.decode("utf-8", "replace").strip()[-OUTPUT_TOLD_CHARACTERS:]
        raise Unavailable(f"{shlex.join(command)} ended with {process.returncode}: {tail}")
