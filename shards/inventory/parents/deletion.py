"""Deleting a tenant or namespace: its children live in other shards, all of which must agree.

    started ──▶ close the gate in every shard ──▶ all closed, in all slots ──▶ deleted
                     ▲                  │      └── a slot was moving ──╮
                     │                  │                             │
                     ╰──────────────────┼─────────────────────────────╯
                                        └── one has children ──▶ reopen ──▶ aborted

Each run is an attempt with a number that grows, across leaders of the home shard too, so that a
delayed message of an earlier run cannot undo a later one. A run that fails leaves the parent
DELETING; deleting it again continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nextgen.kernel.errors import DeadlineExceeded, Definite, MetadataError
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from protos.nextgen.v1.shard_service_pb2 import CommandResult
from shards.domain import namespace, tenant
from shards.domain.namespace import Namespace
from shards.domain.parent import AbortDeletion, FinishDeletion, ParentCommand, StartDeletion
from shards.domain.parent_gate import ParentKind
from shards.domain.tenant import Tenant
from shards.inventory.command_answer import conclude, finish
from shards.inventory.parents.coverage import (
    GATE_PAUSE_MS,
    GATE_ROUNDS_MAX,
    covers_all,
    latest_attempt,
)
from shards.inventory.parents.turns import Turns
from shards.ports import GateAnswer, ParentDirectory
from shards.state.fan_out import gather
from shards.state.shard_state import ShardState
from shards.state.state_reads import StateReads

ShardAnswers = dict[int, GateAnswer | MetadataError]
"""By shard: whether its gate is closed, an error where that is unknown."""


@dataclass(frozen=True, slots=True)
class Family:
    """The operations on one kind of parent: tenants or namespaces."""

    kind: ParentKind
    load: Callable[[StateReads, str], Tenant | Namespace | None]
    decide: Callable[[Any, ParentCommand], Accepted[Any] | Rejected]


TENANTS = Family(ParentKind.TENANT, StateReads.load_tenant, tenant.decide)
NAMESPACES = Family(ParentKind.NAMESPACE, StateReads.load_namespace, namespace.decide)


class ParentDeletion:
    """Deletes parents at home in one shard, for one term; one run per parent at a time."""

    def __init__(self, state: ShardState, directory: ParentDirectory) -> None:
        self._state = state
        self._directory = directory
        self._turns = Turns(state.term.number)

    async def delete(
        self, family: Family, name: str, command_id: bytes, expected_version: int = 0
    ) -> CommandResult:
        """Delete the parent, if it is at this version (0: any), or continue its deletion.

        Raises:
            DeadlineExceeded: The run failed. The parent is DELETING; repeat to continue.
            NotLeader, ProposalLost: Leadership moved; likewise.
        """
        async with self._turns.of((family.kind, name)):
            return await self._start(family, name, command_id, expected_version)

    async def _start(
        self, family: Family, name: str, command_id: bytes, expected_version: int
    ) -> CommandResult:
        state = self._state
        before = family.load(state.reads, name)
        started = family.decide(before, StartDeletion(name, expected_version))
        answer = conclude(
            state, command_id if isinstance(started, Rejected) else b"", started, CommandResult()
        )
        # Durable before any gate closes, so that the reason for a closed gate can always be read.
        result = await finish(state, answer)
        if isinstance(started, Rejected):
            return result
        assert before is not None, "the deletion of a parent that is not there was rejected"
        try:
            return await self._carry_on(family, name, before.parent_id, command_id)
        except Definite as error:
            # A definite error of one step leaves the outcome of the deletion open.
            raise _unfinished(family.kind, name, str(error)) from error

    async def _carry_on(
        self, family: Family, name: str, parent_id: str, command_id: bytes
    ) -> CommandResult:
        state = self._state
        for _ in range(GATE_ROUNDS_MAX):
            attempt = self._turns.next_attempt()
            answers = await self._close(family.kind, name, parent_id, attempt)
            gates = [each for each in answers.values() if isinstance(each, GateAnswer)]
            errors = [each for each in answers.values() if isinstance(each, MetadataError)]
            refusals = [each.rejected for each in gates if each.rejected is not None]
            state.slots.check_key(name)
            if any(each.code is not RejectionCode.NOT_EMPTY for each in refusals):
                if self._has_come and latest_attempt(gates) >= attempt:
                    # The parent's former shard counted further.
                    self._turns.exceed(latest_attempt(gates))
                    continue
                # A later attempt is under way, so another leader has replaced this one.
                raise _unfinished(family.kind, name, refusals[0].message)
            if refusals:
                await self._reopen(family.kind, name, parent_id, attempt, list(answers))
                return await self._abort(family, name, parent_id, command_id)
            if errors:
                raise _unfinished(family.kind, name, str(errors[0]))
            if covers_all(gates):
                done = family.decide(
                    family.load(state.reads, name), FinishDeletion(name, parent_id)
                )
                result = CommandResult(id=parent_id)
                return await finish(state, conclude(state, command_id, done, result))
            await asyncio.sleep(GATE_PAUSE_MS / 1_000)
        raise _unfinished(family.kind, name, "slots are between two shards")

    @property
    def _has_come(self) -> bool:
        """Whether slots of this shard, that of the parent perhaps, came from another one."""
        own = self._state.reads.load_shard()
        return own is not None and bool(own.came)

    async def _close(
        self, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> ShardAnswers:
        shard_ids = list(self._directory.shard_ids())
        closes = [
            self._directory.close_gate(shard_id, kind, name, parent_id, attempt)
            for shard_id in shard_ids
        ]
        return dict(zip(shard_ids, await gather(closes), strict=True))

    async def _reopen(
        self, kind: ParentKind, name: str, parent_id: str, attempt: int, shard_ids: list[int]
    ) -> None:
        """Abandon the attempt in every shard.

        Shards that refused are included: from then on they reject messages of earlier attempts.
        """
        reopens = [
            self._directory.reopen_gate(shard_id, kind, name, parent_id, attempt)
            for shard_id in shard_ids
        ]
        for answer in await gather(reopens):
            if isinstance(answer, MetadataError):
                raise _unfinished(kind, name, str(answer)) from answer
            if answer.rejected is not None:
                raise _unfinished(kind, name, answer.rejected.message)

    async def _abort(
        self, family: Family, name: str, parent_id: str, command_id: bytes
    ) -> CommandResult:
        state = self._state
        state.slots.check_key(name)
        aborted = family.decide(family.load(state.reads, name), AbortDeletion(name, parent_id))
        if isinstance(aborted, Rejected):
            return await finish(state, conclude(state, command_id, aborted, CommandResult()))
        result = CommandResult(
            rejection_code=RejectionCode.NOT_EMPTY.value,
            message=f"{family.kind.value} {name} is not empty",
        )
        return await finish(state, conclude(state, command_id, aborted, result))


def _unfinished(kind: ParentKind, name: str, why: str) -> DeadlineExceeded:
    return DeadlineExceeded(f"{kind.value} {name} is still being deleted, repeat to go on: {why}")
