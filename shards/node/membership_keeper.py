"""Changes a shard's members to those that the shard map wants: one instance per leadership term.

    map changed, leader new, link back ──▶ look ──▶ one step ──▶ report ──▶ look …
                                            └─▶ has to wait: look again after LOOK_AGAIN_MS

The only state between steps is the wish and the log, and both outlive this process: if a leader
dies, the next one makes the remaining steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

import structlog

from nextgen.kernel.errors import MetadataError, NotLeader
from nextgen.replication.ports import (
    ChangeKind,
    MemberChange,
    NodeId,
    ReplicatedLog,
)
from nextgen.tasks.background import keep
from protos.nextgen.v1.cluster_service_pb2 import MembersReport
from shards.domain.membership_plan import (
    AddLearner,
    Done,
    HandOver,
    Progress,
    Promote,
    Remove,
    Situation,
    Step,
    Wait,
    Wish,
    next_step,
)
from shards.ports import Cancellable, Clock

LOOK_AGAIN_MS = 250
"""Milliseconds between two checks while a step waits: no event reports that a learner caught up."""

_logger = structlog.get_logger(__name__)


class MembershipKeeper:
    """Owned by the node while ``log`` leads its shard at ``term``.

    ``wish`` returns the shard's placement in the present map, None while the map lacks the shard.
    ``send`` sends a report to the cluster manager, or drops it without a connection.
    """

    def __init__(
        self,
        shard_id: int,
        term: int,
        node_id: str,
        log: ReplicatedLog,
        wish: Callable[[], Wish | None],
        send: Callable[[MembersReport], None],
        clock: Clock,
    ) -> None:
        self.shard_id = shard_id
        self.term = term
        self.waits_for = ""
        """What the next step waits for, empty if nothing does."""
        self._node_id = node_id
        self._log = log
        self._wish = wish
        self._send = send
        self._clock = clock
        self._changed = asyncio.Event()
        self._must_report = False
        self._timer: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = self.waits_for or "idle"
        return f"<MembershipKeeper shard={self.shard_id} term={self.term} {state}>"

    def start(self) -> None:
        """Begin to compare map and log, and report the committed configuration."""
        self._task = keep("membership", self._run)
        self.report_again()

    def look(self) -> None:
        """Compare the map with the log: call when the map has changed."""
        self._changed.set()

    def report_again(self) -> None:
        """Report once more: call after a reconnect to the cluster manager."""
        self._must_report = True
        self._changed.set()

    def close(self) -> asyncio.Task[None] | None:
        """Make no further step. Returns the cancelled task, which the caller may await."""
        self._drop_timer()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._drop_timer()
            try:
                await self._approach()
            except NotLeader:
                return  # The next leader has a keeper of its own.
            except MetadataError as error:
                # Refused for now, or the change's outcome is unknown: check again later.
                self._wait(str(error))

    async def _approach(self) -> None:
        """Make steps until none is left, or the next one has to wait."""
        while (wish := self._wish()) is not None:
            if self._must_report:
                self._report(wish)
            step = next_step(wish, self._situation())
            match step:
                case Wait(why):
                    self._wait(why)
                    return
                case Done():
                    if not wish.is_fulfilled:
                        self._report(wish)
                    self._waiting_for("")
                    return
                case HandOver(target):
                    _logger.info("hands over to be removed", shard=self.shard_id, target=target)
                    await self._log.transfer_leadership(NodeId(target))
                    return
                case AddLearner() | Promote() | Remove():
                    await self._change(step)
                case _:
                    assert_never(step)

    async def _change(self, step: AddLearner | Promote | Remove) -> None:
        change = MemberChange(_KINDS[type(step)], NodeId(step.node_id))
        configuration = await self._log.change_members(change)
        self._must_report = True
        _logger.info(
            "members changed",
            shard=self.shard_id,
            change=change.kind.value,
            node=change.node_id,
            voters=list(configuration.voters),
            learners=list(configuration.learners),
        )

    def _situation(self) -> Situation:
        status = self._log.status
        return Situation(
            self._node_id,
            voters=status.members,
            learners=status.learners,
            progress={
                member.node_id: Progress(
                    member.is_connected, member.match_index, member.gets_snapshot
                )
                for member in status.progress
            },
            configuration_index=status.configuration_index,
        )

    def _report(self, wish: Wish) -> None:
        """Report the committed configuration to the cluster manager."""
        status = self._log.status
        if status.configuration_index > status.commit_index:
            return  # It may still be truncated. The step that proposed it reports it later.
        self._must_report = False
        if status.configuration_index == 0 and wish.is_fulfilled:
            return  # The map has it already, and an older cluster manager takes no reports.
        self._send(
            MembersReport(
                shard_id=self.shard_id,
                term=self.term,
                configuration_index=status.configuration_index,
                voters=status.members,
                learners=status.learners,
            )
        )

    def _wait(self, why: str) -> None:
        self._waiting_for(why)
        due = self._clock.monotonic() + LOOK_AGAIN_MS / 1_000
        self._timer = self._clock.call_at(due, self._changed.set)

    def _waiting_for(self, why: str) -> None:
        if why and why != self.waits_for:
            _logger.info("members wait", shard=self.shard_id, why=why)
        self.waits_for = why

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_KINDS: dict[type[Step], ChangeKind] = {
    AddLearner: ChangeKind.ADD_LEARNER,
    Promote: ChangeKind.PROMOTE,
    Remove: ChangeKind.REMOVE,
}
