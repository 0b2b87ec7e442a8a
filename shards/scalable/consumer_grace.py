"""Removes registered consumers of scalable topics whose clients are gone.

That a consumer is registered is a fact in its topic's state, that its client is connected is not.
Nodes report connections; a consumer whose connection ended, or whose node is silent, is removed
after a grace, so that a client that comes back finds its segments. After a change of the leader all
consumers are in grace until they are attached again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

import structlog

from nextgen.kernel.errors import InvalidRequest, MetadataError
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    ATTACHED_CONSUMERS_MAX,
    CONSUMERS_PER_ATTACH_MAX,
    SCALABLE_CONSUMER_GRACE_MS,
    SCALABLE_CONSUMER_NAME_BYTES_MAX,
    SCALABLE_NODE_SILENCE_MS,
)
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain, InvalidName, parse_topic
from nextgen.replication.ports import Commit
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import (
    AttachConsumersRequest,
    AttachConsumersResponse,
    AttachedConsumer,
    DetachConsumersRequest,
)
from shards.domain.scalable.commands import RemoveConsumer
from shards.domain.scalable.decider import decide
from shards.ports import Clock
from shards.scalable.attachments import Attachments, Claim, Member, NodeId
from shards.state.shard_state import ShardState

_SWEPT_PER_TURN = 1_000
"""Consumers of silent nodes that are put into grace in one turn of the event loop."""

_REMOVED_AT_A_TIME = 64
"""Removals that are under way together."""

_PAGE = 256
"""Topics that are read together when all registered consumers are looked for."""

_RETRY_SECONDS = 1.0

_EXPIRED = "expired"

_logger = structlog.get_logger(__name__)


class ConsumerGrace:
    """The attached consumers of one shard's scalable topics, for one term."""

    def __init__(
        self,
        state: ShardState,
        clock: Clock,
        *,
        grace_ms: int = SCALABLE_CONSUMER_GRACE_MS,
        silence_ms: int = SCALABLE_NODE_SILENCE_MS,
        attached_max: int = ATTACHED_CONSUMERS_MAX,
    ) -> None:
        self._state = state
        self._clock = clock
        self._grace_s = grace_ms / 1_000
        self._silence_s = silence_ms / 1_000
        self._attachments = Attachments(
            state.term.number,
            silence_s=self._silence_s,
            grace_s=self._grace_s,
            members_max=attached_max,
        )
        self._looks_at: float | None = None
        """When those that were registered in earlier terms are looked for; None: it is done."""
        self.on_removed: Callable[[str], object] = lambda _topic: None
        """Called with the topic of each consumer that is removed."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<ConsumerGrace shard={self._state.shard_id} attached={len(self._attachments)} "
            f"in_grace={self._attachments.in_grace}>"
        )

    @property
    def attached(self) -> int:
        """Registered consumers that are attached to a node."""
        return len(self._attachments)

    @property
    def in_grace(self) -> int:
        """Registered consumers whose connection ended in this term, and whose grace runs."""
        return self._attachments.in_grace

    def start(self) -> None:
        """Begin the grace of all consumers that are registered.

        However short a grace is, nodes that live have had the time for their renewals by its end.
        """
        self._looks_at = self._clock.monotonic() + max(self._grace_s, self._silence_s)
        self._task = keep("consumer_grace", self._run)

    def slots_coming(self, is_of: Callable[[str], bool]) -> None:
        """Forget earlier attachments of consumers whose topics this shard adopts.

        ``is_of`` tells by a topic's routing key. CALL it in the step of the loop that proposes the
        adoption.
        """
        self._attachments.forget(lambda topic: is_of(topic.partition("://")[2]))

    def look_again(self) -> None:
        """Begin the grace of consumers whose topics have come to this shard."""
        self._looks_at = self._clock.monotonic() + max(self._grace_s, self._silence_s)
        self._wake.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def attach(self, request: AttachConsumersRequest) -> AttachConsumersResponse:
        """Renew a node and attach consumers to it.

        Raises:
            InvalidRequest: Too many consumers, or a name that is none.
            StaleShardMap: A topic has its slot in another shard.
            Overloaded: Too many consumers are attached in this shard. Nothing changed.
        """
        node, claims = self._parsed(request)
        for member, _ in claims:
            self._state.slots.check_key(member.topic.partition("://")[2])
        moved = {
            member: consumer.moved_attachment
            for (member, _), consumer in zip(claims, request.consumers, strict=True)
            if consumer.moved_attachment
        }
        attached = self._attachments.attach(node, claims, self._clock.monotonic(), moved)
        self._wake.set()
        return AttachConsumersResponse(
            is_known=attached.is_known,
            attachments=attached.attachments,
            ended=[
                AttachedConsumer(
                    topic=member.topic,
                    subscription=member.subscription,
                    consumer_name=member.consumer,
                    attachment=number,
                )
                for member, number in attached.ended
            ],
        )

    def detach(self, request: DetachConsumersRequest) -> None:
        """End attachments, as far as they hold. Their topics may be in another shard by now, and
        come back: what was attached here ends here.

        Raises:
            InvalidRequest: See ``attach``.
        """
        node, claims = self._parsed(request)
        now = self._clock.monotonic()
        self._attachments.detach(node, claims, now, has_grace=not request.have_left)
        self._wake.set()

    def _parsed(
        self, request: AttachConsumersRequest | DetachConsumersRequest
    ) -> tuple[NodeId, list[Claim]]:
        _check_size("node", request.node_id, NODE_ID_BYTES_MAX)
        _check_size("incarnation's", request.incarnation, NODE_ID_BYTES_MAX)
        if len(request.consumers) > CONSUMERS_PER_ATTACH_MAX:
            raise InvalidRequest(
                f"{len(request.consumers)} consumers in one request, at most "
                f"{CONSUMERS_PER_ATTACH_MAX} are allowed"
            )
        claims = [_claim(each) for each in request.consumers]
        return NodeId(request.node_id, request.incarnation), claims

    # Removing ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._state.term.is_over:
            await self._wait()
            now = self._clock.monotonic()
            has_more = True
            while has_more:
                has_more = self._attachments.sweep(now, _SWEPT_PER_TURN)
                await asyncio.sleep(0)
            # The term may end at any await: then this ends, and the next leader begins anew.
            with contextlib.suppress(MetadataError):
                if self._looks_at is not None and now >= self._looks_at:
                    await self._look_for_registered()
                    self._looks_at = None
                while due := self._attachments.take_due(now, _REMOVED_AT_A_TIME):
                    await self._remove(due)

    async def _wait(self) -> None:
        """Return when there is something to do."""
        while True:
            self._wake.clear()
            times = [self._attachments.next_at, self._looks_at]
            next_at = min([each for each in times if each is not None], default=None)
            if next_at is None:
                await self._wake.wait()
                continue
            left = next_at - self._clock.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with timeout(left):
                    await self._wake.wait()

    async def _look_for_registered(self) -> None:
        """Remove every registered consumer that neither is attached nor has a grace of its own."""
        after = ""
        while names := self._state.scans.scalable_with_consumers(after, _PAGE):
            for name in names:
                topic = self._state.reads.load_scalable(name)
                groups = topic.subscriptions.values() if topic is not None else ()
                members = [
                    Member(name, group.name, consumer)
                    for group in groups
                    for consumer in group.consumers
                ]
                for first in range(0, len(members), _REMOVED_AT_A_TIME):
                    await self._remove(members[first : first + _REMOVED_AT_A_TIME])
                # A topic may be large: reading it is a turn of the loop.
                await asyncio.sleep(0)
            after = names[-1]

    async def _remove(self, members: Sequence[Member]) -> None:
        """Remove consumers that are not claimed; return when that is committed.

        Raises:
            NotLeader, ProposalLost: The term is over.
        """
        left = list(members)
        while left := [each for each in left if not self._attachments.is_claimed(each)]:
            commits: list[asyncio.Future[Commit]] = []
            refused = []
            for member in left:
                try:
                    commits += self._propose_removal(member)
                except MetadataError as error:
                    self._state.term.check()
                    refused.append(member)
                    why = str(error)
                # Each removal distributes the segments of a topic anew: one a turn of the loop.
                await asyncio.sleep(0)
            await asyncio.gather(*commits)
            if refused:
                _logger.info("consumers stay for now", consumers=len(refused), why=why)
                await asyncio.sleep(_RETRY_SECONDS)
            left = refused

    def _propose_removal(self, member: Member) -> Iterable[asyncio.Future[Commit]]:
        """Decide and propose. No await: that is the lock."""
        if self._attachments.is_claimed(member):
            return ()
        if not self._state.slots.has(slot_of(member.topic.partition("://")[2])):
            return ()  # Another shard has it by now, and its consumers with it.
        topic = self._state.reads.load_scalable(member.topic)
        if topic is None:
            return ()
        command = RemoveConsumer(member.subscription, member.consumer, _EXPIRED)
        decision = decide(topic, command)
        if not isinstance(decision, Accepted) or not decision.events:
            return ()
        self._state.check_not_restoring()
        commit = self._state.proposer.propose(decision.events)
        self.on_removed(member.topic)
        return (commit,)


def _claim(consumer: AttachedConsumer) -> Claim:
    try:
        name = parse_topic(consumer.topic)
    except InvalidName as error:
        raise InvalidRequest(f"a consumer's topic: {error}") from error
    if name.domain is not Domain.TOPIC:
        raise InvalidRequest(f"{name.text} is not the name of a scalable topic")
    _check_size("subscription", consumer.subscription, SUBSCRIPTION_NAME_BYTES_MAX)
    _check_size("consumer", consumer.consumer_name, SCALABLE_CONSUMER_NAME_BYTES_MAX)
    member = Member(name.text, consumer.subscription, consumer.consumer_name)
    return member, consumer.attachment


def _check_size(what: str, name: str, bytes_max: int) -> None:
    size = len(name.encode())
    if not 0 < size <= bytes_max:
        raise InvalidRequest(f"a {what} name has {size} bytes, 1 to {bytes_max} are allowed")
