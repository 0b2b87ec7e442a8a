"""Tells shards which consumers' connections this process has (ADR 0122).

    attach ─▶ one request at a time to the shard, for all that wait ─▶ numbered
                  ▲ every few seconds, without consumers: the process lives
                  ╰ the leader does not know the process: all are attached anew

One task for each shard in which there are consumers. Requests to a shard follow each other, so what
was said last is what the shard heard last. An end of a connection is repeated until it was heard,
and holds up nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

import structlog

from nextgen.client.routing.shard_calls import Shards
from nextgen.kernel.errors import MetadataError, StaleShardMap, Unavailable
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.scalable import CONSUMERS_PER_ATTACH_MAX, SCALABLE_ATTACH_RENEWAL_MS
from nextgen.tasks.background import cancel_and_wait, keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb

_INCARNATION_BYTES = 8
_RETRY_SECONDS = 0.5
_REHOMED_PER_TURN = 1_000
"""Consumers whose shard is looked up in one turn of the event loop."""

_Member = tuple[str, str, str]
"""Topic, subscription and consumer."""

_logger = structlog.get_logger(__name__)


class Attachment:
    """One consumer whose connection is here. ``number`` is the shard's, 0 before it is known."""

    __slots__ = ("_listener", "attached", "is_replaced", "key", "member", "moved", "number")

    def __init__(self, member: _Member, key: str) -> None:
        self.member = member
        self.key = key
        self.number = 0
        self.moved = 0
        """The number that the shard gave which had the topic before this one."""
        self.is_replaced = False
        """Whether the consumer's client came back by another connection."""
        self.attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the shard has it."""
        self._listener: Callable[[], None] | None = None

    def on_replaced(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once, if the consumer's client came or comes back elsewhere."""
        self._listener = listener
        if self.is_replaced:
            listener()

    def replaced(self) -> None:
        """The consumer's client came back by another connection."""
        self.is_replaced = True
        if not self.attached.done():
            self.attached.set_exception(_replaced())
            self.attached.exception()  # Nobody may be waiting for it any more.
        if self._listener is not None:
            self._listener()


class AttachedConsumers:
    """Owned by one event loop; ``stop`` it at the end."""

    def __init__(self, shards: Shards, node_id: str) -> None:
        self._shards = shards
        self.node_id = node_id
        self.incarnation = secrets.token_hex(_INCARNATION_BYTES)
        self._by_shard: dict[int, _OfShard] = {}
        self._shard_map_version = 0

    def __repr__(self) -> str:
        return f"<AttachedConsumers node={self.node_id} consumers={len(self)}>"

    def __len__(self) -> int:
        return sum(len(each.members) for each in self._by_shard.values())

    async def attach(self, member: _Member, key: str) -> Attachment:
        """Attach a consumer; ``key`` is its topic's routing key. ``detach`` it at the end.

        One of the same name that this process has is replaced.

        Raises:
            MetadataError: It is not attached.
        """
        attachment = Attachment(member, key)
        home = self._of(self._shards.shard_of_key(key))
        for each in self._by_shard.values():
            if each is not home:
                each.replace(member)
        home.add(attachment)
        try:
            await self._attached(attachment)
        except BaseException:
            self.detach(attachment)
            raise
        return attachment

    def cluster_changed(self, shard_map_version: int) -> None:
        """Attach consumers at the shards that have their topics by the present map."""
        if shard_map_version != self._shard_map_version:
            self._shard_map_version = shard_map_version
            for each in self._by_shard.values():
                each.look_for_moved()

    async def confirm(self, attachment: Attachment) -> None:
        """Return once the shard has confirmed an attachment.

        Raises:
            MetadataError: It was replaced, or the shard cannot be asked.
        """
        if attachment.is_replaced:
            raise _replaced()
        attachment.attached = asyncio.get_running_loop().create_future()
        for each in self._by_shard.values():
            each.repeat(attachment)
        await self._attached(attachment)

    async def _attached(self, attachment: Attachment) -> None:
        try:
            async with timeout(REQUEST_TIMEOUT_DEFAULT_MS / 1_000):
                await asyncio.shield(attachment.attached)
        except TimeoutError:
            raise Unavailable("the shard of the topic did not attach the consumer") from None

    def detach(self, attachment: Attachment, *, has_left: bool = False) -> None:
        """End an attachment. ``has_left``: the consumer is no longer registered."""
        for each in self._by_shard.values():
            each.remove(attachment, has_left=has_left)

    async def stop(self) -> None:
        """Give up all attachments, without a word: the shards notice that nothing is renewed."""
        tasks = [each.task for each in self._by_shard.values() if each.task is not None]
        self._by_shard.clear()
        await cancel_and_wait(*tasks)

    def _of(self, shard_id: int) -> _OfShard:
        of_shard = self._by_shard.get(shard_id)
        if of_shard is None:
            of_shard = self._by_shard[shard_id] = _OfShard(self, shard_id)
        return of_shard

    # As the tasks call it ---------------------------------------------------------------------

    async def call(self, shard_id: int, request: pb.ShardRequest) -> pb.ShardResponse:
        return await self._shards.call(shard_id, request, timeout_ms=REQUEST_TIMEOUT_DEFAULT_MS)

    async def rehome(self, of_shard: _OfShard) -> None:
        """Move what is no longer at home in a shard to the shards that have it now."""
        for place, attachment in enumerate(list(of_shard.members.values()), 1):
            home = self._shards.shard_of_key(attachment.key)
            if home != of_shard.shard_id and of_shard.has(attachment):
                of_shard.forget(attachment)
                # Shards number for themselves.
                attachment.moved, attachment.number = attachment.number or attachment.moved, 0
                self._of(home).add(attachment)
            if not place % _REHOMED_PER_TURN:
                await asyncio.sleep(0)

    def idle(self, of_shard: _OfShard) -> None:
        if self._by_shard.get(of_shard.shard_id) is of_shard:
            del self._by_shard[of_shard.shard_id]


class _OfShard:
    """The consumers of one shard's topics."""

    def __init__(self, owner: AttachedConsumers, shard_id: int) -> None:
        self._owner = owner
        self.shard_id = shard_id
        self.members: dict[_Member, Attachment] = {}
        self._fresh: dict[_Member, Attachment] = {}
        """Attachments that the next request to the shard names."""
        self._gone: dict[tuple[_Member, int], bool] = {}
        """Ended attachments, and whether their consumers have left."""
        self._has_moved = False
        """Whether some of the topics may be in another shard."""
        self._wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def add(self, attachment: Attachment) -> None:
        before = self.members.get(attachment.member)
        self.members[attachment.member] = self._fresh[attachment.member] = attachment
        if before is not None:
            before.replaced()
        self._wake.set()
        if self.task is None:
            self.task = keep("attached_consumers", self._run)

    def replace(self, member: _Member) -> None:
        """The consumer's client came back, when its topic was in another shard."""
        held = self.members.get(member)
        if held is not None:
            self.remove(held, has_left=False)
            held.replaced()

    def has(self, attachment: Attachment) -> bool:
        return self.members.get(attachment.member) is attachment

    def look_for_moved(self) -> None:
        """Look soon for consumers whose topics are in another shard by now."""
        self._has_moved = True
        self._wake.set()

    def repeat(self, attachment: Attachment) -> None:
        """Send an attachment to the shard again."""
        if self.has(attachment):
            self._fresh[attachment.member] = attachment
            self._wake.set()

    def remove(self, attachment: Attachment, *, has_left: bool) -> None:
        if self.has(attachment):
            self.forget(attachment)
            if attachment.number:
                self._gone[attachment.member, attachment.number] = has_left
                self._wake.set()

    def forget(self, attachment: Attachment) -> None:
        del self.members[attachment.member]
        self._fresh.pop(attachment.member, None)

    async def _run(self) -> None:
        """Attach, renew and detach; return when no attachment is left."""
        while self.members or self._gone:
            self._wake.clear()
            if self._has_moved:
                self._has_moved = False
                # If no map is known, they stay.
                with contextlib.suppress(MetadataError):
                    await self._owner.rehome(self)
                continue
            # Whatever holds up the ends, the others are renewed.
            are_heard = [await self._is_heard(say) for say in (self._detach, self._attach)]
            if not all(are_heard):
                await asyncio.sleep(_RETRY_SECONDS)
                self._has_moved = True  # That may be why.
                continue
            if self._has_moved or self._fresh or self._gone or not self.members:
                continue
            with contextlib.suppress(TimeoutError):
                async with timeout(SCALABLE_ATTACH_RENEWAL_MS / 1_000):
                    await self._wake.wait()
        self.task = None
        self._owner.idle(self)

    async def _is_heard(self, say: Callable[[], Awaitable[None]]) -> bool:
        try:
            await say()
        except MetadataError as error:
            _logger.info("consumers not attached", shard=self.shard_id, why=str(error))
            return False
        return True

    async def _detach(self) -> None:
        for have_left in (False, True):
            while ended := list(
                islice(
                    (key for key, left in self._gone.items() if left is have_left),
                    CONSUMERS_PER_ATTACH_MAX,
                )
            ):
                request = pb.DetachConsumersRequest(
                    node_id=self._owner.node_id,
                    incarnation=self._owner.incarnation,
                    consumers=[_consumer(member, number) for member, number in ended],
                    have_left=have_left,
                )
                await self._owner.call(self.shard_id, pb.ShardRequest(detach_consumers=request))
                for key in ended:
                    self._gone.pop(key, None)

    async def _attach(self) -> None:
        """Renew all attachments of this process, and send the new ones."""
        claims = list(islice(self._fresh.values(), CONSUMERS_PER_ATTACH_MAX))
        try:
            await self._send(claims)
        except StaleShardMap:
            if len(self.members) > len(claims):
                # A topic that went away does not take the attachments of the others along.
                await self._send(())
            raise

    async def _send(self, claims: Sequence[Attachment]) -> None:
        request = pb.AttachConsumersRequest(
            node_id=self._owner.node_id,
            incarnation=self._owner.incarnation,
            consumers=[_consumer(each.member, each.number, each.moved) for each in claims],
        )
        response = await self._owner.call(self.shard_id, pb.ShardRequest(attach_consumers=request))
        answer = response.attach_consumers
        for attachment, number in zip(claims, answer.attachments, strict=False):
            self._attached(attachment, number)
        if not answer.is_known:
            # The leader is a new one, or it heard nothing for a while.
            told = set(claims)
            for each in self.members.values():
                if each not in told:
                    self._fresh[each.member] = each
        for ended in answer.ended:
            member = (ended.topic, ended.subscription, ended.consumer_name)
            self._gone[member, ended.attachment] = False
            held = self.members.get(member)
            if held is not None and held.number == ended.attachment:
                self._replaced(held)

    def _attached(self, attachment: Attachment, number: int) -> None:
        is_held = self.has(attachment)
        if self._fresh.get(attachment.member) is attachment:
            del self._fresh[attachment.member]
        if number and not is_held:
            # It ended while the request was on its way. If another one of this process follows,
            # that one's number is higher, and this says nothing of it.
            self._gone[attachment.member, number] = False
        elif number:
            attachment.number = number
            if not attachment.attached.done():
                attachment.attached.set_result(None)
        elif is_held:
            self._replaced(attachment)

    def _replaced(self, attachment: Attachment) -> None:
        self.forget(attachment)
        attachment.replaced()


def _consumer(member: _Member, number: int, moved: int = 0) -> pb.AttachedConsumer:
    topic, subscription, consumer = member
    return pb.AttachedConsumer(
        topic=topic,
        subscription=subscription,
        consumer_name=consumer,
        attachment=number,
        moved_attachment=moved,
    )


def _replaced() -> Unavailable:
    return Unavailable("the consumer's client came back by another connection")
