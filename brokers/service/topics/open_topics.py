"""The open topics of this broker, and access to them: only assigned topics are served.

    assigned here in this session                       ▶ served
    else, the topic controller answers: here            ▶ assigned by this lookup, served
                               answers: elsewhere       ▶ refused, the client looks it up again
                               answers: no such topic   ▶ TopicNotFound
                               cannot be reached        ▶ served if it is open here and not fenced

*Owner* means: may acknowledge, and storage decides that. The rules here only decide where clients
are sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import structlog

from brokers.domain.holding import Assignment, Holding, Release, UnitKey
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.session import ChangedMetadata
from brokers.domain.storage_policy import StoragePolicy
from brokers.domain.subscriptions.cursor_record import UnknownCursorVersion
from brokers.ports.directory import OwnersDirectory
from brokers.ports.ledger import Fenced, LedgerDamaged, TopicLedger
from brokers.service.storage_refusal import STORAGE_ERRORS, storage_refusal
from brokers.service.topics.higher_epochs import HigherEpochs
from brokers.service.topics.open_units import OpenUnits, UnitLocks, forget_oldest
from brokers.service.topics.policies import TopicPolicies
from brokers.service.topics.topic import Topic
from brokers.service.topics.unit import TopicDependencies, TopicUnit
from brokers.service.topics.unit_ledgers import UnitLedgers
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.client_limits import TopicLimits
from nextgen.kernel.limits.placement import PREPARED_UNITS_MAX
from nextgen.kernel.limits.pulsar import (
    ENDED_UNIT_PAUSE_MS,
    TOPICS_RELOCATING_MAX,
)
from nextgen.kernel.routing.names import Domain, InvalidName, TopicName, parse_topic
from nextgen.pulsar.errors import server_error_of
from nextgen.tasks.background import cancel_and_wait, start

_NOT_LOOKED = -1
"""Stands for the highest epoch of a ledger that was not determined."""

_NEVER_FENCED = (-1, _NOT_LOOKED)

_logger = structlog.get_logger(__name__)


class Topics:
    """All open topics of one broker. Tasks that it starts end with ``close``.

    ``holding`` returns the present session's holding.
    """

    def __init__(
        self,
        *,
        broker_id: str,
        broker_url: str,
        holding: Callable[[], Holding],
        directory: OwnersDirectory,
        ledgers: UnitLedgers,
        dependencies: TopicDependencies,
    ) -> None:
        self.dependencies = dependencies
        self._broker_id = broker_id
        self._broker_url = broker_url
        self._holding = holding
        self._directory = directory
        self._ledgers = ledgers
        self._open = OpenUnits()
        self._policies = TopicPolicies(holding, self._open.by_name, dependencies.policy)
        self._finding: dict[tuple[str, bool], asyncio.Task[Topic]] = {}
        self._locks = UnitLocks()
        self._relocations = asyncio.Semaphore(TOPICS_RELOCATING_MAX)
        self._higher_epochs = HigherEpochs(directory, self._note_error)
        self._fenced: dict[UnitKey, tuple[int, int]] = {}
        """By unit: the epoch that was fenced here, and the highest epoch in its ledger then."""
        self._ended: dict[UnitKey, tuple[int, float]] = {}
        """By unit: the epoch that was ended for a deletion, and when."""
        self._damaged: dict[UnitKey, str] = {}
        self._relocating: set[str] = set()
        self._preparing = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.errors: dict[str, str] = {}
        """Topics that could not be opened, with the reason, until they are opened."""

    def __repr__(self) -> str:
        return f"<Topics open={len(self._open)} finding={len(self._finding)}>"

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over the open topics; they may be opened and closed meanwhile."""
        return iter(self._open)

    def get(self, name: str) -> Topic | None:
        """Return the open topic of a canonical name."""
        return self._open.get(name)

    def held(self, name: TopicName) -> Assignment | None:
        """Return the assignment of a name in the present session, None if it is not held.

        A former name of a topic stands for it until the grace of the rename ends.
        """
        return self._holding().held(name, self.dependencies.now_ms())

    def assignment_of(self, key: UnitKey) -> Assignment | None:
        """Return the assignment of a unit in the present session, None if it is not held."""
        return self._holding().assignments.get(key)

    def use_limits(self, limits: TopicLimits) -> None:
        """Set what clients may use of a topic where no policy says otherwise."""
        self._policies.use_limits(limits)

    def policy_of(self, assignment: Assignment) -> StoragePolicy:
        """Return the effective policy of a held unit, whether it is open or not."""
        return self._policies.of(assignment)

    async def open(self, name: TopicName, *, create: bool) -> Topic:
        """Return the topic if this broker has to serve it; with ``create`` it may be created.

        ``name`` may be a former one, see ``held``; the topic has its present name.

        Raises:
            Refusal: It is not served here, or it does not exist, or storage fails.
        """
        held = self.held(name)
        topic = None if held is None else self._open.of(held.key)
        if topic is not None and topic.is_usable and self._is_held(topic):
            return topic
        if self._is_closed:
            raise Refusal(ServerError.SERVICE_NOT_READY, "the broker is stopping")
        key = (name.text, create)
        finding = self._finding.get(key)
        if finding is None:
            finding = self._own(self._find(name, create))
            self._finding[key] = finding
            finding.add_done_callback(lambda _: self._finding.pop(key, None))
        return await asyncio.shield(finding)

    async def open_assigned(self, name: TopicName, key: UnitKey, epoch: int) -> Topic:
        """Return the topic if exactly this unit and epoch are assigned here. Asks no shard.

        The unit counts, whatever the topic is called meanwhile; ``name`` is for messages.

        Raises:
            Refusal: ServiceNotReady: another assignment holds. Others as of ``open``.
        """
        assignment = self.assignment_of(key)
        if assignment is None or assignment.epoch != epoch:
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"broker {self._broker_id} does not have {name.text} in epoch {epoch}: "
                "look it up again",
            )
        topic = await self.open(parse_topic(assignment.name), create=False)
        if topic.unit.key != key or topic.unit.epoch != epoch:
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"{name.text} was assigned anew while it was opened: look it up again",
            )
        return topic

    async def end_assigned(
        self,
        name: TopicName,
        key: UnitKey,
        epoch: int,
        *,
        is_forced: bool,
        is_check_only: bool = False,
    ) -> None:
        """End the ownership of a unit in this epoch, so that its topic can be deleted.

        On return its clients are closed, and it is not opened in this epoch again. For
        ``ENDED_UNIT_PAUSE_MS`` its clients are refused; then the next one causes a later epoch.
        ``is_check_only``: only the check. May be repeated.

        Raises:
            Refused: IN_USE: it has producers, consumers or subscriptions, and it is not forced.
            Refusal: As of ``open_assigned``.
        """
        if self._has_ended(key, epoch):
            async with self._locks.held(key):
                return
        topic = await self.open_assigned(name, key, epoch)
        use = topic.use
        if use and not is_forced:
            raise Refused(RejectionCode.IN_USE, f"topic {name.text} is in use: {use}")
        if is_check_only:
            return
        # No await since the check: no client connects in between.
        topic.is_closing = True
        self._ended[key] = (epoch, asyncio.get_running_loop().time())
        forget_oldest(self._ended)
        # In a task of its own: a caller that gives up does not leave it half closed.
        await asyncio.shield(self._own(self.close_topic(topic, is_over=True)))

    async def remove(self, name: TopicName, key: UnitKey, epoch: int) -> None:
        """Remove the messages of a unit that is gone for good, held here or not.

        No epoch of the generation of ``epoch`` or before is opened again. May be repeated.

        Raises:
            Refusal: Storage failed; some of the messages may be left.
        """
        await asyncio.shield(self._own(self._remove(name.text, key, epoch)))

    # Session ---------------------------------------------------------------------------------

    def assigned(self, assignment: Assignment) -> None:
        """A unit was assigned. End an earlier ownership of it; it is opened when it is used."""
        self._policies.assigned(assignment)
        for topic in self._open.of_either(assignment.name, assignment.key):
            if topic.unit.key != assignment.key or topic.unit.epoch < assignment.epoch:
                # Its clients reconnect to this broker.
                self._own(self.close_topic(topic, self._broker_url, is_over=True))
        if assignment.take_over:
            self._own(self._take_over(assignment))

    def released(self, release: Release) -> None:
        """A unit was released: redirect its clients to the next owner, and end its epoch.

        If its topic is deleted, remove its messages.
        """
        if release.is_deleted:
            self._own(self._remove(release.name, release.key, release.epoch))
            return
        for topic in self._open.up_to(release.key, release.epoch):
            self._own(self.close_topic(topic, release.new_broker_url, is_over=True))

    def prepare(self, assignment: Assignment) -> None:
        """A unit may be assigned soon: read ahead the files of its takeover."""
        if self._preparing < PREPARED_UNITS_MAX:
            self._preparing += 1
            self._own(self._prepare(assignment))

    def metadata_changed(self, changed: ChangedMetadata) -> None:
        """Policies changed: apply them to the open topics concerned."""
        self._policies.changed(changed)

    def session_began(self) -> None:
        """A new session began: look up the open topics that it has no assignment for."""
        self.relocate_strays()

    def relocate_strays(self) -> None:
        """Locate the open topics that are not assigned in the present session."""
        for topic in self:
            name = topic.unit.name
            if self._is_held(topic):
                continue
            # A topic without producers would not find out by itself that it has another owner.
            topic.ledger.look_for_fence()
            if name not in self._relocating:
                self._relocating.add(name)
                self._own(self._relocate(topic))

    # Closing ---------------------------------------------------------------------------------

    async def close_topic(
        self, topic: Topic, broker_url: str = "", *, is_over: bool = False
    ) -> None:
        """Redirect a topic's clients and close its ledger; ``is_over``: its epoch has ended."""
        async with self._locks.held(topic.unit.key):
            await self._close_locked(topic, broker_url, is_over=is_over)

    async def close_idle(self, topic: Topic) -> None:
        """Close a topic unless a client has connected meanwhile."""
        async with self._locks.held(topic.unit.key):
            if not topic.has_clients:
                await self._close_locked(topic, "")

    async def close(self) -> None:
        """Close all topics. Clients look their topics up again."""
        self._is_closed = True
        await cancel_and_wait(*self._tasks)
        await asyncio.gather(*(topic.close() for topic in self), return_exceptions=True)
        self._open.clear()

    # Inside ----------------------------------------------------------------------------------

    async def _find(self, name: TopicName, create: bool) -> Topic:
        assignment = self.held(name)
        if assignment is None:
            located = await self._ask(name, create)
            if isinstance(located, Topic):
                return located
            assignment = located
        return await self._opened(assignment)

    async def _ask(self, name: TopicName, create: bool) -> Assignment | Topic:
        """Look the topic up at the topic controller, which may assign it to this broker."""
        try:
            located = await self._directory.locate(name, create=create)
        except Refused as error:
            raise Refusal(server_error_of(error), str(error)) from error
        except MetadataError as error:
            topic = self._open.get(name.text)
            if topic is not None and topic.is_usable:
                return topic
            raise Refusal(
                ServerError.SERVICE_NOT_READY, f"the owner of {name.text} is not known: {error}"
            ) from error
        if located.broker_id != self._broker_id:
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"topic {name.text} is served by broker {located.broker_id} at "
                f"{located.broker_url or 'an unknown address'}: look it up again",
            )
        # By the unit: the shard knows whether a former name still stands for it.
        assignment = self.assignment_of((located.topic_id, located.unit))
        if assignment is None or assignment.epoch < located.epoch:
            # The session of its assignment has ended meanwhile.
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"topic {name.text} has not arrived at broker {self._broker_id}: look it up again",
            )
        return assignment

    async def _opened(self, assignment: Assignment) -> Topic:
        name = parse_topic(assignment.name)
        async with self._locks.held(assignment.key):
            for earlier in self._open.of_either(name.text, assignment.key):
                if earlier.is_usable and self._is_held(earlier):
                    return earlier
                await self._close_locked(earlier, self._broker_url)
            topic = await self._open_locked(name, assignment)
            if not self._is_held(topic):
                await topic.close()
                raise Refusal(
                    ServerError.SERVICE_NOT_READY,
                    f"topic {name.text} has moved meanwhile: look it up again",
                )
            # Its policies may have changed during the opening.
            self._policies.assigned(assignment, topic)
            self._open.add(topic)
            return topic

    async def _open_locked(self, name: TopicName, assignment: Assignment) -> Topic:
        is_persistent = name.domain is not Domain.NON_PERSISTENT
        fenced_epoch, used_epoch = self._fenced.get(assignment.key, _NEVER_FENCED)
        is_fenced = fenced_epoch >= assignment.epoch and used_epoch != _NOT_LOOKED
        if is_persistent and is_fenced:
            self._ask_for_higher_epoch(assignment, used_epoch)
            raise storage_refusal(Fenced(), name.text)
        if assignment.key in self._damaged:
            raise storage_refusal(LedgerDamaged(self._damaged[assignment.key]), name.text)
        if self._has_ended(assignment.key, assignment.epoch):
            self._leave_ended(assignment)
            raise Refusal(
                ServerError.SERVICE_NOT_READY,
                f"topic {name.text} is being deleted, or was to be: look it up again",
            )
        try:
            ledger = await self._ledgers.open(name, assignment)
            topic = await self._recovered(name, assignment, ledger)
        except STORAGE_ERRORS as error:
            self._failed_to_open(name.text, assignment, error)
            raise storage_refusal(error, name.text) from error
        self.errors.pop(name.text, None)
        _logger.info("topic opened", topic=repr(topic))
        return topic

    def _has_ended(self, key: UnitKey, epoch: int) -> bool:
        """Return whether the ownership of a unit was ended for a deletion in this epoch."""
        ended = self._ended.get(key)
        return ended is not None and ended[0] >= epoch

    def _leave_ended(self, assignment: Assignment) -> None:
        """Request a later epoch for a unit whose topic was not deleted after all."""
        epoch, ended_at = self._ended[assignment.key]
        if asyncio.get_running_loop().time() - ended_at >= ENDED_UNIT_PAUSE_MS / 1_000:
            self._ask_for_higher_epoch(assignment, epoch)

    async def _recovered(
        self, name: TopicName, assignment: Assignment, ledger: TopicLedger
    ) -> Topic:
        """Restore the topic from the ledger's state; close the ledger if that cannot be read."""
        unit = TopicUnit(
            name=name.text,
            topic_id=assignment.topic.topic_id,
            unit=assignment.unit,
            epoch=assignment.epoch,
            partition=-1 if name.partition is None else name.partition,
            is_persistent=name.domain is not Domain.NON_PERSISTENT,
        )
        try:
            policy = self._policies.of(assignment)
            topic = Topic(unit, ledger, self.dependencies, self._on_closing, policy)
            await topic.recover()
        except (ValueError, TypeError, LookupError, UnknownCursorVersion) as error:
            await ledger.close()
            raise LedgerDamaged(f"the state beside the messages: {error}") from error
        return topic

    def _failed_to_open(self, name: str, assignment: Assignment, error: Exception) -> None:
        _logger.warning("topic not opened", topic=name, epoch=assignment.epoch, error=str(error))
        if isinstance(error, Fenced):
            self._remember_fenced(assignment.key, assignment.epoch, error.used_epoch)
            self._ask_for_higher_epoch(assignment, error.used_epoch)
            return
        self._note_error(name, str(error))

    def _note_error(self, name: str, why: str) -> None:
        self.errors[name] = why
        forget_oldest(self.errors)

    def _ask_for_higher_epoch(self, assignment: Assignment, used_epoch: int) -> None:
        """Request an epoch above those in the unit's ledger, if this is the present assignment."""
        if self._holding().assigned(assignment.name) == assignment:
            asking = self._higher_epochs.ask(assignment, used_epoch)
            if asking is not None:
                self._own(asking)

    async def _close_locked(self, topic: Topic, broker_url: str, *, is_over: bool = False) -> None:
        try:
            await topic.close(broker_url, is_over=is_over)
        finally:
            self._open.drop(topic)

    async def _remove(self, name: str, key: UnitKey, epoch: int) -> None:
        """Close a unit that is gone for good, if it is open, and remove its messages."""
        for topic in self._open.up_to(key, epoch):
            await self.close_topic(topic, is_over=True)
        await self._ledgers.remove(name, key, epoch, self._locks)

    async def _take_over(self, assignment: Assignment) -> None:
        """Open a unit whose clients are being redirected here; they share the opening."""
        with suppress(Refusal, InvalidName):
            await self.open(parse_topic(assignment.name), create=False)

    async def _prepare(self, assignment: Assignment) -> None:
        try:
            await self._ledgers.prepare(assignment)
        finally:
            self._preparing -= 1

    async def _relocate(self, topic: Topic) -> None:
        try:
            await self._send_to_owner(topic)
        finally:
            self._relocating.discard(topic.unit.name)

    async def _send_to_owner(self, topic: Topic) -> None:
        """Redirect the clients of a topic of an ended session to its owner; close an unused one."""
        if not topic.has_clients:
            await self.close_idle(topic)
            return
        try:
            async with self._relocations:
                located = await self._directory.locate(parse_topic(topic.unit.name), create=False)
        except Refused:
            await self.close_topic(topic)
        except (MetadataError, InvalidName) as error:
            # Keep serving it: storage decides whether it may acknowledge.
            _logger.info("topic not located", topic=topic.unit.name, error=str(error))
        else:
            if not self._is_held(topic):
                await self.close_topic(topic, located.broker_url)

    def _on_closing(self, topic: Topic, reason: str) -> None:
        """Close a topic whose ledger failed or was fenced by a later owner."""
        _logger.warning("topic closes", topic=repr(topic), reason=reason)
        if topic.ledger.is_fenced:
            # If it is still assigned here, the next opening finds the highest epoch in its ledger.
            self._remember_fenced(topic.unit.key, topic.unit.epoch, _NOT_LOOKED)
        elif isinstance(topic.failure, LedgerDamaged):
            # Remember the damage: otherwise the topic would be opened and written to again until
            # the next reader finds it.
            self._damaged[topic.unit.key] = str(topic.failure)
            forget_oldest(self._damaged)
        if not self._is_closed:
            # Redirect its clients to the later owner, if that is known.
            going_to = self._holding().going_to(topic.unit.key, topic.unit.epoch)
            self._own(self.close_topic(topic, going_to if topic.ledger.is_fenced else ""))

    def _remember_fenced(self, key: UnitKey, epoch: int, used_epoch: int) -> None:
        self._fenced[key] = max((epoch, used_epoch), self._fenced.pop(key, _NEVER_FENCED))
        forget_oldest(self._fenced)

    def _is_held(self, topic: Topic) -> bool:
        """Whether the open unit and epoch are assigned in the present session."""
        held = self.assignment_of(topic.unit.key)
        return held is not None and held.epoch == topic.unit.epoch

    def _own(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return start("topic", work, self._tasks, expected=Refusal)
