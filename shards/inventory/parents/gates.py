"""Opens gates: a leader's step before the first child of a parent is created in its shard.

The parent is read at its home shard, which takes time. If the gate's version has changed since the
read began, the parent is read again (docs/flows/inventory.md). The source of a shadow is read each
time, also behind an open gate: it must have as many partitions as the shadow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PARENT_READS_IN_FLIGHT_MAX
from shards.domain import parent_gate
from shards.domain.parent_gate import OpenParentGate, ParentGateEvent, ParentKind, gate_key
from shards.domain.states import StateKind
from shards.ports import Parent, ShadowDirectory
from shards.state.fan_out import gather
from shards.state.shard_state import ShardState


class WantedParent(NamedTuple):
    """A parent of which children are to be created."""

    kind: ParentKind
    name: str
    partitions: int = 0
    """Of the shadow, if the parent is its source."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Children may be created. ``events`` go into the same record as the first child."""

    parent_id: str
    events: tuple[ParentGateEvent, ...]


@dataclass(frozen=True, slots=True)
class ParentRead:
    """A parent as its home shard returned it, and the gate's version when the read began.

    A rejection says why the source of a shadow cannot have it.
    """

    gate_version: int
    parent: Parent | Rejected | None


ParentReads = dict[WantedParent, ParentRead]


class ParentGates:
    """The gates of one shard, for one term."""

    def __init__(self, state: ShardState, directory: ShadowDirectory) -> None:
        self._state = state
        self._directory = directory

    def admit(
        self, wanted: Iterable[WantedParent], reads: ParentReads
    ) -> dict[WantedParent, Admission | Rejected | None]:
        """Return for each parent whether children may be created at this moment.

        None: ``reads`` has no current read of the parent, which is needed; call ``read``.
        """
        parents = list(wanted)
        keys = [gate_key(parent.kind, parent.name) for parent in parents]
        self._state.reads.load(StateKind.PARENT_GATE, keys)
        return {parent: self._admit(parent, reads.get(parent)) for parent in parents}

    async def read(self, wanted: Iterable[WantedParent]) -> ParentReads:
        """Read parents at their home shards.

        Raises:
            MetadataError: One could not be read.
        """
        places = asyncio.Semaphore(PARENT_READS_IN_FLIGHT_MAX)

        async def read_one(parent: WantedParent) -> ParentRead:
            async with places:
                # The gate's version is noted BEFORE the parent is read.
                version = self._version(parent)
                return ParentRead(version, await self._read(parent))

        parents = list(wanted)
        answers = await gather([read_one(parent) for parent in parents])
        reads: ParentReads = {}
        for parent, answer in zip(parents, answers, strict=True):
            if not isinstance(answer, ParentRead):
                raise answer
            reads[parent] = answer
        return reads

    async def _read(self, parent: WantedParent) -> Parent | Rejected | None:
        if parent.kind is not ParentKind.TOPIC:
            return await self._directory.read_parent(parent.kind, parent.name)
        shard_id = self._state.shard_id
        return await self._directory.admit_shadow(parent.name, shard_id, parent.partitions)

    def _version(self, parent: WantedParent) -> int:
        gate = self._state.reads.load_gate(parent.kind, parent.name)
        return 0 if gate is None else gate.version

    def _admit(self, parent: WantedParent, read: ParentRead | None) -> Admission | Rejected | None:
        kind, name, _ = parent
        gate = self._state.reads.load_gate(kind, name)
        if gate is not None and gate.is_open and kind is not ParentKind.TOPIC:
            return Admission(gate.parent_id, ())
        if read is None or read.gate_version != self._version(parent):
            return None
        if isinstance(read.parent, Rejected):
            return read.parent
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
