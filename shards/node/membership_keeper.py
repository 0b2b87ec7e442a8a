"""Brings a shard's members to what the shard map wants: one instance per term of leadership.

    map changed, leader new, link back ──▶ look ──▶ one step ──▶ report ──▶ look …
                                            └─▶ has to wait: look again after LOOK_AGAIN_MS

Nothing is remembered between steps but the wish and the log, both of which outlive this process: a
leader that dies on the way leaves a step to be made by the next one.
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
"""While something is under way elsewhere: a learner that catches up says so only when looked at."""

_logger = structlog.get_logger(__name__)


class MembershipKeeper:
    """Owned by the node while ``log`` leads its shard at ``term``.

    ``wish`` returns what the map says at the moment, None while it does not have the shard;
    ``send`` takes a report to the cluster manager, or loses it if there is no connection.
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
        """Begin to compare, and report what is committed."""
        self._task = keep("membership", self._run)
        self.report_again()

    def look(self) -> None:
        """Compare the map with the log: call when the map has changed."""
        self._changed.set()

    def report_again(self) -> None:
        """Report once more: call when the connection to the cluster manager is a new one."""
        self._must_report = True
        self._changed.set()

    def close(self) -> asyncio.Task[None] | None:
        """Make no step any more. Returns the task that ends, for whoever waits for it."""
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
                return  # Whoever leads next has a keeper of its own.
            except MetadataError as error:
                # Refused for the moment, or nobody knows whether it survived: look again.
                self._wait(str(error))

    async def _approach(self) -> None:
        """Make steps until there is none, or one has to wait."""
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
        """Tell the cluster manager which configuration is committed."""
        status = self._log.status
        if status.configuration_index > status.commit_index:
            return  # It may yet be cut off. The step that made it reports it.
        self._must_report = False
        if status.configuration_index == 0 and wish.is_fulfilled:
            return  # The map began with it; a cluster manager of an older release is not asked.
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
