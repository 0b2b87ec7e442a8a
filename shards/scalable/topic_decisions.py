"""Decisions about one scalable topic: load, decide, propose, and wait for the commit."""

from __future__ import annotations

import asyncio

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from shards.domain.scalable.commands import ScalableTopicCommand, SealSegment
from shards.domain.scalable.decider import decide
from shards.domain.scalable.state import ScalableTopic
from shards.scalable.change_progress import ChangeProgress
from shards.state.shard_state import ShardState


class TopicDecisions:
    """Decides on the topic called ``name``, for one term."""

    def __init__(
        self, state: ShardState, name: str, progress: ChangeProgress | None = None
    ) -> None:
        """``progress`` is that of the topic's operations, for decisions that seal segments."""
        self._state = state
        self._progress = progress
        self._decided = asyncio.Event()
        self.name = name

    def __repr__(self) -> str:
        return f"<TopicDecisions {self.name}>"

    @property
    def is_over(self) -> bool:
        """Whether the term is over."""
        return self._state.term.is_over

    def now_ms(self) -> int:
        return self._state.now_ms()

    def load(self) -> ScalableTopic | None:
        """Return the topic, pending decisions included; None if there is none.

        Raises:
            NotLeader: The term is over.
        """
        return self._state.reads.load_scalable(self.name)

    async def confirm(self) -> None:
        """Return once what ``load`` returned is committed and this replica is known to lead.

        Nothing is asked of a broker BEFORE that: what was decided may be lost with the term.

        Raises:
            NotLeader, ProposalLost: Leadership moved.
        """
        await self._state.proposer.confirm()

    async def decide(self, topic_id: str, command: ScalableTopicCommand) -> None:
        """Decide ``command`` about the topic with this id; return once that is committed.

        Raises:
            Refused: It was rejected, as of a state that is committed.
            MetadataError: Nothing was decided, or leadership moved.
        """
        topic = self.load()
        if topic is None or topic.topic_id != topic_id:
            raise Refused(RejectionCode.NOT_FOUND, f"topic {self.name} was deleted")
        decision = decide(topic, command)
        if isinstance(decision, Accepted) and decision.events:
            if isinstance(command, SealSegment) and self._progress is not None:
                self._progress.note_parent_ended()
            self._state.check_not_restoring()
            await self._state.proposer.propose(decision.events)
            self.note_change()
            return
        await self.confirm()
        if isinstance(decision, Rejected):
            raise Refused(decision.code, decision.message)

    def note_change(self) -> None:
        """Wake those that wait for a change of the topic."""
        decided, self._decided = self._decided, asyncio.Event()
        decided.set()

    async def wait_change(self) -> None:
        """Return after the next change of the topic."""
        await self._decided.wait()
