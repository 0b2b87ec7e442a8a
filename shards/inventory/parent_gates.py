"""Opens gates: a leader's step before the first child of a parent is created in its shard.

The parent is read at its home shard, which takes time. If the gate's version has changed since the
read began, the parent is read again (docs/flows/inventory.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PARENT_READS_IN_FLIGHT_MAX
from shards.domain import parent_gate
from shards.domain.parent_gate import OpenParentGate, ParentGateEvent, ParentKind, gate_key
from shards.domain.states import StateKind
from shards.ports import Parent, ParentDirectory
from shards.state.fan_out import gather
from shards.state.shard_state import ShardState


@dataclass(frozen=True, slots=True)
class Admission:
    """Children may be created. ``events`` go into the same record as the first child."""

    parent_id: str
    events: tuple[ParentGateEvent, ...]


@dataclass(frozen=True, slots=True)
class ParentRead:
    """A parent as its home shard returned it, and the gate's version when the read began."""

    gate_version: int
    parent: Parent | None


class ParentGates:
    """The gates of one shard, for one term."""

    def __init__(self, state: ShardState, directory: ParentDirectory) -> None:
        self._state = state
        self._directory = directory

    def admit(
        self, kind: ParentKind, names: Iterable[str], reads: dict[str, ParentRead]
    ) -> dict[str, Admission | Rejected | None]:
        """Return for each parent whether children may be created at this moment.

        None: its gate is not open and ``reads`` has no current read of the parent; call ``read``.
        """
        wanted = list(names)
        self._state.reads.load(StateKind.PARENT_GATE, [gate_key(kind, name) for name in wanted])
        return {name: self._admit(kind, name, reads.get(name)) for name in wanted}

    async def read(self, kind: ParentKind, names: Iterable[str]) -> dict[str, ParentRead]:
        """Read parents at their home shards.

        Raises:
            MetadataError: One could not be read.
        """
        places = asyncio.Semaphore(PARENT_READS_IN_FLIGHT_MAX)

        async def read_one(name: str) -> ParentRead:
            async with places:
                # The gate's version is noted BEFORE the parent is read.
                version = self._version(kind, name)
                return ParentRead(version, await self._directory.read_parent(kind, name))

        wanted = list(names)
        answers = await gather([read_one(name) for name in wanted])
        reads: dict[str, ParentRead] = {}
        for name, answer in zip(wanted, answers, strict=True):
            if not isinstance(answer, ParentRead):
                raise answer
            reads[name] = answer
        return reads

    def _version(self, kind: ParentKind, name: str) -> int:
        gate = self._state.reads.load_gate(kind, name)
        return 0 if gate is None else gate.version

    def _admit(
        self, kind: ParentKind, name: str, read: ParentRead | None
    ) -> Admission | Rejected | None:
        gate = self._state.reads.load_gate(kind, name)
        if gate is not None and gate.is_open:
            return Admission(gate.parent_id, ())
        if read is None or read.gate_version != self._version(kind, name):
            return None
        if read.parent is None:
            return Rejected(RejectionCode.PARENT_NOT_FOUND, f"{kind.value} {name} does not exist")
        if read.parent.is_deleting:
            return Rejected(
                RejectionCode.NOT_ALLOWED, f"{kind.value} {name} is being deleted, try again later"
            )
        command = OpenParentGate(kind, name, read.parent.parent_id, read.gate_version)
        decision = parent_gate.decide(gate, command)
        if isinstance(decision, Accepted):
            return Admission(read.parent.parent_id, decision.events)
        return decision
