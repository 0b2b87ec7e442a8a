"""Pointers from names to the homes of topics, in the shard that has the names' slots.

A pointer says that one topic may have the name; only the topic's home knows. Whoever wants the name
has the home asked first. Between its answer and the decision the topic may be about to get the name
after all: then its home has sent ``PointName`` meanwhile, which makes the answer void.

A request about the name is sent on to the home. If it comes back within ``SENT_ON_MS`` the home has
no such topic, perhaps: then the home is asked before the request is sent on again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.cluster import PARENT_READ_ATTEMPTS_MAX, PARENT_READS_IN_FLIGHT_MAX
from nextgen.kernel.limits.write import POINTERS_REMEMBERED_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Domain, TopicName
from protos.nextgen.v1.shard_service_pb2 import (
    NAME_USE_CURRENT,
    NAME_USE_FORMER,
    NAME_USE_FREE,
    NAME_USE_PENDING,
    NAME_USE_RESTING,
    CommandResult,
    GetNameUseResponse,
)
from shards.domain.renames.names import TopicNameFreed, TopicNamePointed, TopicPointer
from shards.domain.topic import twin_of
from shards.inventory.command_answer import Answer, conclude, finish
from shards.ports import ShadowDirectory
from shards.state.fan_out import gather
from shards.state.shard_state import ShardState
from shards.state.topic_names import LeadsElsewhere, home_slot_of
from shards.wire.name_orders import OnPoint

SENT_ON_MS = 1_000
"""A request that is sent on comes back sooner, if at all."""

_DOMAINS = (Domain.PERSISTENT, Domain.NON_PERSISTENT, Domain.TOPIC)

_logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Use:
    pointer: TopicPointer
    version: int
    """Of the pointer when the home was asked."""
    answer: GetNameUseResponse


@dataclass(slots=True)
class NameUses:
    """What homes said about names, by the pointer's name. Void if the pointer changed since."""

    by_name: dict[str, _Use] = field(default_factory=dict)


NOT_ASKED = NameUses()


class NamePointers:
    """The pointers of one shard, for one term."""

    def __init__(self, state: ShardState, directory: ShadowDirectory) -> None:
        self._state = state
        self._directory = directory
        self._versions: OrderedDict[str, int] = OrderedDict()
        """By name: the number of the last ``PointName`` about it, of the latest of them."""
        self._forgotten = 0
        """The highest number that is not remembered any more."""
        self._points = 0
        self._sent_on: OrderedDict[str, float] = OrderedDict()

    def of(self, name: TopicName) -> list[TopicPointer]:
        """Return the pointers that may keep others from having ``name``: its own, its twin's, and
        one of another domain to another slot, because routing keys have no domain."""
        if not self._state.names.have_pointers:
            return []
        own, twin, slot = name.base_text, twin_of(name), slot_of(name.routing_key)
        texts = [f"{domain}://{name.routing_key}" for domain in _DOMAINS]
        return [
            pointer
            for text, pointer in self._state.names.pointers(texts).items()
            if text in (own, twin) or home_slot_of(pointer.topic_id, name) != slot
        ]

    async def ask(self, names: Iterable[TopicName], topic_id: str = "") -> NameUses:
        """Have the homes of other topics than ``topic_id`` say what they use the names for.

        Raises:
            MetadataError: A home could not be asked.
        """
        places = asyncio.Semaphore(PARENT_READS_IN_FLIGHT_MAX)

        async def ask_one(pointer: TopicPointer) -> _Use:
            async with places:
                # The version is noted BEFORE the home is asked.
                version = self._version(pointer.name)
                answer = await self._directory.name_use(pointer.name, pointer.topic_id)
                return _Use(pointer, version, answer)

        pointers = {
            each.name: each for name in names for each in self.of(name) if each.topic_id != topic_id
        }
        uses = NameUses()
        for use in await gather([ask_one(pointer) for pointer in pointers.values()]):
            if not isinstance(use, _Use):
                raise use
            uses.by_name[use.pointer.name] = use
        return uses

    def admit(
        self, name: TopicName, uses: NameUses, topic_id: str = ""
    ) -> Accepted[TopicNameFreed] | Rejected:
        """Return why ``name`` is not free for a topic, or the events that make it so.

        ``topic_id`` is a topic that may have the name already, "" for a new one.

        Raises:
            Unavailable: A pointer came or changed since the homes were asked.
        """
        freed: list[TopicNameFreed] = []
        for pointer in self.of(name):
            if pointer.topic_id == topic_id:
                continue
            use = uses.by_name.get(pointer.name)
            if use is None or use.pointer != pointer or use.version != self._version(pointer.name):
                raise Unavailable(f"{pointer.name} may become a renamed topic's, try again")
            if use.answer.use != NAME_USE_FREE:
                return Rejected(RejectionCode.ALREADY_EXISTS, _taken(pointer.name, use.answer))
            freed.append(TopicNameFreed(pointer.name, pointer.topic_id))
        return Accepted(tuple(freed))

    def point(self, command: OnPoint) -> Answer | Coroutine[Any, Any, CommandResult]:
        """Reserve a name for a topic that its home is about to rename.

        ALREADY_EXISTS: a topic has it, or a name of the same routing key, or one may get it.
        """
        self.note_pointed(command.name.base_text)
        if all(each.topic_id == command.body.topic_id for each in self.of(command.name)):
            return self._point(command, NOT_ASKED)
        return self._point_later(command)

    async def check(self, names: Sequence[TopicName]) -> None:
        """Check that none of ``names`` leads to a topic whose home is another shard.

        Raises:
            StaleShardMap: One may: ask its home.
            Unavailable: One is about to. Its home could not be asked.
        """
        elsewhere = self._state.names.leading_elsewhere(names)
        if not elsewhere:
            return
        now = self._state.monotonic()
        came_back = [each for each in elsewhere if self._was_sent_on(each, now)]
        uses = await self.ask([each.name for each in came_back]) if came_back else NOT_ASKED
        free = {each.pointer.name for each in came_back if self._frees(each, uses)}
        moved = [each for each in elsewhere if each.pointer.name not in free]
        if moved:
            for each in moved:
                self._remember_sent_on(each.pointer.name, now)
            raise self._state.names.refusal(moved)

    # Inside -----------------------------------------------------------------------------------

    async def _point_later(self, command: OnPoint) -> CommandResult:
        for _ in range(PARENT_READ_ATTEMPTS_MAX):
            uses = await self.ask([command.name], command.body.topic_id)
            self._state.slots.check(command.slot)
            try:
                return await finish(self._state, self._point(command, uses))
            except Unavailable:
                continue
        raise Unavailable(f"the pointers of {command.name.base_text} keep changing")

    def _point(self, command: OnPoint, uses: NameUses) -> Answer:
        name, topic_id = command.name.base_text, command.body.topic_id
        found = self.taken_by_topic(command.name, topic_id) or self.admit(
            command.name, uses, topic_id
        )
        if isinstance(found, Rejected):
            return conclude(self._state, command.command_id, found, CommandResult())
        events: list[TopicNameFreed | TopicNamePointed] = [
            each for each in found.events if each.name != name
        ]
        pointer = self._state.names.pointer(name)
        if pointer is None or pointer.topic_id != topic_id:
            events.append(TopicNamePointed(name, topic_id))
        result = CommandResult(id=topic_id)
        return conclude(self._state, command.command_id, Accepted(tuple(events)), result)

    def taken_by_topic(self, name: TopicName, topic_id: str = "") -> Rejected | None:
        """Return which topic of this shard, other than ``topic_id``, keeps ``name`` from being a
        renamed topic's: one with the same routing key, of any domain."""
        texts = [f"{domain}://{name.routing_key}" for domain in _DOMAINS]
        for text, topic in zip(texts, self._state.reads.load_topics(texts), strict=True):
            if topic is not None and topic.topic_id != topic_id:
                return Rejected(RejectionCode.ALREADY_EXISTS, f"topic {text} already exists")
        return None

    def _frees(self, each: LeadsElsewhere, uses: NameUses) -> bool:
        """Return whether a name leads to nothing at its home. If the home has no more use for it,
        the pointer is removed, some time.

        Raises:
            Unavailable: The name is about to be the topic's.
        """
        use = uses.by_name[each.pointer.name]
        if use.answer.use == NAME_USE_PENDING:
            raise Unavailable(f"a topic is about to be renamed to {each.pointer.name}")
        if use.answer.use != NAME_USE_FREE:
            return use.answer.use == NAME_USE_RESTING
        found = self.of(each.name)
        if each.pointer in found and use.version == self._version(each.pointer.name):
            try:
                freed = TopicNameFreed(each.pointer.name, each.pointer.topic_id)
                self._state.check_not_restoring()
                self._state.proposer.propose((freed,))
            except MetadataError as error:
                _logger.debug("pointer not removed", name=each.pointer.name, why=str(error))
        return True

    def _was_sent_on(self, each: LeadsElsewhere, now: float) -> bool:
        sent_at = self._sent_on.get(each.pointer.name)
        return sent_at is not None and now - sent_at < SENT_ON_MS / 1_000

    def _remember_sent_on(self, name: str, now: float) -> None:
        self._sent_on.pop(name, None)
        self._sent_on[name] = now
        if len(self._sent_on) > POINTERS_REMEMBERED_MAX:
            self._sent_on.popitem(last=False)

    def _version(self, name: str) -> int:
        return self._versions.get(name, self._forgotten)

    def note_pointed(self, name: str) -> None:
        """Make void what homes said about ``name``: a topic is about to get it."""
        self._points += 1
        self._versions.pop(name, None)
        self._versions[name] = self._points
        if len(self._versions) > POINTERS_REMEMBERED_MAX:
            self._forgotten = self._versions.popitem(last=False)[1]


def pointed(state: ShardState, name: str, topic_id: str) -> tuple[TopicNamePointed, ...]:
    """Return the event that lets ``name`` point to a topic, none if it does already."""
    present = state.names.pointer(name)
    if present is not None and present.topic_id == topic_id:
        return ()
    return (TopicNamePointed(name, topic_id),)


def _taken(name: str, answer: GetNameUseResponse) -> str:
    if answer.use == NAME_USE_CURRENT:
        return f"{name} is the name of a topic that was renamed"
    if answer.use in (NAME_USE_FORMER, NAME_USE_RESTING):
        return (
            f"{name} is a former name of a topic that was renamed, and free once {answer.until_ms} "
            "ms of Unix time are over"
        )
    return f"a topic is about to be renamed to {name}"
