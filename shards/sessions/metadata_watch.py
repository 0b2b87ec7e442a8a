"""Keeps brokers' metadata up to date: a change is sent only to sessions that have the object.

    sent to a session ──▶ its name is followed at its home shard ──▶ a higher version, a removal
                                                                        │
                          one delivery in the session's sequence ◀──────┘

A topic that is renamed stays the same object at the same home: it is followed by its new name.

Versions settle every race. Metadata that is sent with an assignment may be newer or older than the
stream: only a higher version is sent again. An object of the same name with another id may succeed
only a deleted one. A snapshot that shows this may be older than an object that was read at the home
shard's leader, so that leader is read again before a broker gets the deletion.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

import structlog

from nextgen.kernel.errors import MetadataError, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.stream import (
    METADATA_DELTAS_UNSYNCED_MAX,
    METADATA_EXISTENCE_CHECKS_PER_READ_MAX,
    METADATA_NAMES_WATCHED_MAX,
    METADATA_WATCH_RETRY_MS,
)
from nextgen.tasks.background import keep, start
from protos.nextgen.v1.broker_service_pb2 import Delivery, HeldMetadata
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, Kind, Topic
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.ports import Clock, HomeShards, MetadataReader
from shards.sessions.home_watch import HomeWatch, WatchedName
from shards.sessions.metadata_state import (
    MetadataState,
    change_delivery,
    id_of,
    removal_delivery,
    state_of,
)
from shards.sessions.pending_deliveries import PendingDelivery
from shards.sessions.session_metadata import DeliverySequence, Sent, SessionMetadata

_REHOMED_AT_ONCE = 500
"""Names whose shard is looked up in one turn of the event loop, a few microseconds each."""

_EXISTENCE_TIMEOUT_MS = 3_000
"""Reading objects at their home shard, a leader's election included."""

OnDelivery = Callable[[str], None]
"""Is called with the kind of each delivery of a change: tenant, namespace, topic or removed."""

OnRefused = Callable[[str], None]
"""Is called with the limit that caused a refusal: names or parents."""

_logger = structlog.get_logger(__name__)


class MetadataWatch:
    """Watches the metadata of one broker manager's sessions at their home shards, for one term."""

    def __init__(
        self,
        subscriber_id: str,
        homes: HomeShards,
        metadata: MetadataReader,
        clock: Clock,
        on_delivery: OnDelivery,
        on_refused: OnRefused = lambda _limit: None,
    ) -> None:
        self._subscriber_id = subscriber_id
        self._homes = homes
        self._metadata = metadata
        self._clock = clock
        self._on_delivery = on_delivery
        self._on_refused = on_refused
        self._names: dict[str, WatchedName] = {}
        self._home_watches: dict[int, HomeWatch] = {}
        self._unconfirmed: dict[Sent, None] = {}
        self._late: dict[Sent, list[PendingDelivery]] = {}
        """Pending deliveries that have no place in their session's sequence yet, by object."""
        self._leaving: dict[Sent, int] = {}
        """Objects that their brokers give up, with the place of that in the session's sequence."""
        self._left: dict[DeliverySequence, deque[Sent]] = {}
        """The same by session, in the order of the places."""
        self._settling: asyncio.Task[None] | None = None
        self._rehoming: asyncio.Task[None] | None = None
        self._is_closed = False
        self._terms: dict[int, int] = {}
        """By home shard: the highest term of its leaders that announced themselves here."""
        self.are_reported: Callable[[], bool] = lambda: True
        """Says whether it is known of every session what its broker holds."""

    def __repr__(self) -> str:
        return f"<MetadataWatch {self._subscriber_id} names={len(self._names)}>"

    @property
    def name_count(self) -> int:
        """Names that are followed."""
        return len(self._names)

    @property
    def watch_count(self) -> int:
        """Watches at all home shards together."""
        return sum(home.watch_count for home in self._home_watches.values())

    def close(self) -> None:
        """Follow nothing any more."""
        self._is_closed = True
        for home in self._home_watches.values():
            home.close()
        self._names.clear()
        self._late.clear()
        self._leaving.clear()
        self._left.clear()
        for task in (self._settling, self._rehoming):
            if task is not None:
                task.cancel()

    @property
    def subscriber_id(self) -> str:
        """The id under which this manager subscribes at home shards."""
        return self._subscriber_id

    def note_leader(self, shard_id: int, term: int, node_id: str) -> bool:
        """Note that a node leads a home shard; return whether its term is a later one."""
        self._homes.note_leader(shard_id, term, node_id)
        if term <= self.term_of(shard_id):
            return False
        self._terms[shard_id] = term
        return True

    def term_of(self, shard_id: int) -> int:
        """Return the latest term of a home shard that was noted, 0 if none was."""
        return self._terms.get(shard_id, 0)

    def follows(self, shard_id: int) -> bool:
        """Return whether objects of a home shard are watched, or are about to be.

        If so, acknowledgements to that shard carry the noted term once all of them are watched.
        """
        home = self._home_watches.get(shard_id)
        if home is None or not home.has_names:
            return False
        home.stream.acknowledge()
        return True

    def is_followed(self, name: str) -> bool:
        """Return whether all changes of the object of this name are delivered here."""
        watched = self._names.get(name)
        return watched is not None and watched.known_at > 0

    def known(self, name: str) -> MetadataState | None:
        """Return the latest known version of a watched object; None if it is not known."""
        watched = self._names.get(name)
        return watched.state if watched is not None and watched.known_at else None

    def check_room(
        self, metadata: SessionMetadata, *, parents: Iterable[str], topics: Iterable[str]
    ) -> None:
        """Check that all these names can be watched for a session.

        An object that cannot be watched must not be sent: its home shard would report a write as
        effective although the broker never gets it. CALL BEFORE adding the objects to the sequence.

        Raises:
            Refused: NO_CAPACITY: ``METADATA_NAMES_WATCHED_MAX`` names are followed for the brokers
                of this manager, or the session has ``SESSION_METADATA_MAX`` parents.
        """
        parents = tuple(parents)
        added = {name for name in (*parents, *topics) if name not in self._names}
        if len(self._names) + len(added) > METADATA_NAMES_WATCHED_MAX:
            self._on_refused("names")
            raise Refused(
                RejectionCode.NO_CAPACITY,
                f"{len(self._names)} names are followed for the brokers of this manager, "
                f"there is no room for {len(added)} more",
            )
        if not metadata.has_parent_room(parents):
            self._on_refused("parents")
            raise Refused(
                RejectionCode.NO_CAPACITY,
                f"the session has {metadata.parent_count} tenants and namespaces, "
                f"there is no room for more",
            )

    def hold(self, sent: Sent, topic: Topic | None = None) -> None:
        """Watch ``sent``, which was just added to its session's sequence.

        Adds a delivery at once if a later version is known here. ``topic`` was sent with a unit: it
        says what a renamed topic is called, unless a later version was sent before.

        Raises:
            Overloaded: Too many names are followed; ``check_room`` refuses before.
        """
        if self._is_closed:
            return
        if topic is not None and topic.name != sent.name and topic.version == sent.version:
            self.rename(sent, topic.name)
            return
        watched = self._names.get(sent.name)
        if watched is not None and self._is_of_another(watched, sent):
            self._give_up_name(watched)
            watched = None
        if watched is None:
            if len(self._names) >= METADATA_NAMES_WATCHED_MAX:
                raise Overloaded(f"{len(self._names)} names are followed for brokers")
            self._follow(sent)
            return
        if sent not in watched.holders:
            watched.holders.append(sent)
        if watched.known_at:
            self._compare(sent, watched)

    def rename(self, sent: Sent, name: str) -> None:
        """Watch a topic by its new name. The caller has sent the version of it that has the name,
        and MUST NOT have sent a later one.

        There may be one more name than ``METADATA_NAMES_WATCHED_MAX`` for each renamed topic, until
        all sessions that hold it know of the rename.
        """
        if self._is_closed or sent in self._leaving:
            return
        self.drop(sent)
        sent.name = name
        watched = self._names.get(name)
        if watched is None:
            self._follow(sent)
        else:
            self.hold(sent)

    def leave(self, sent: Sent, sequence: int) -> None:
        """Stop watching ``sent`` once its broker has synced ``sequence``, where it gives it up.

        Until then the broker acts on what it has, and no later change is in effect there.
        """
        self._unconfirmed.pop(sent, None)
        self._place_late(sent)
        watched = self._names.get(sent.name)
        if watched is not None and sent in watched.holders:
            self._leaving[sent] = sequence
            self._left.setdefault(sent.session, deque()).append(sent)

    def drop(self, sent: Sent) -> None:
        """Stop watching ``sent`` for its session, which no longer has it."""
        self._leaving.pop(sent, None)
        self._unconfirmed.pop(sent, None)
        self._place_late(sent)
        watched = self._names.get(sent.name)
        if watched is None or sent not in watched.holders:
            return
        watched.holders.remove(sent)
        if not watched.holders:
            del self._names[watched.name]
            watched.home.discard(watched)

    def drop_all(self, session: DeliverySequence) -> None:
        """The session is over."""
        if not self._is_closed:
            left = self._left.pop(session, ())
            for sent in (*session.metadata, *session.metadata.behind, *left):
                self.drop(sent)
        # A message on a stream that is ending changes nothing.
        session.metadata.behind.clear()
        session.metadata.awaits_report = False
        self.synced()

    def take_report(self, session: DeliverySequence, held: HeldMetadata) -> None:
        """Watch the objects that the broker has from an earlier leader, by its report.

        Raises:
            Overloaded: The broker holds more than can be followed. END the session: its report
                stays incomplete, so new leaders of home shards wait until it has ended.
        """
        if not session.metadata.awaits_report or session.metadata.is_refused:
            return
        limit = "parents"
        try:
            learned = session.metadata.take_report(held)
            limit = "names"
            for sent in learned:
                self.hold(sent)
            for each in held.objects:
                known = session.metadata.topic(each.id)
                if known is not None and known.version == each.version and known.name != each.name:
                    self.rename(known, each.name)
        except Overloaded:
            session.metadata.is_refused = session.metadata.awaits_report = True
            self._on_refused(limit)
            raise

    def deliver_waiting(self, session: DeliverySequence) -> None:
        """Deliver changes that waited for the broker to sync, as many as there is room for."""
        behind = session.metadata.behind
        while behind and session.unsynced < METADATA_DELTAS_UNSYNCED_MAX:
            sent = next(iter(behind))
            del behind[sent]
            watched = self._names.get(sent.name)
            if sent.is_gone:
                self._remove(sent)
            elif watched is not None:
                self._compare(sent, watched)
            if sent not in behind and sent not in self._unconfirmed:
                self._place_late(sent)

    def rehome(self) -> None:
        """Follow names whose slots have moved at the shards that have them: behind a snapshot
        there, for versions of objects grow across moves.

        What was delivered before is acknowledged to the former shard as ever.
        """
        if self._rehoming is None or self._rehoming.done():
            self._rehoming = start("metadata_rehoming", self._rehome())

    async def _rehome(self) -> None:
        names = iter(tuple(self._names.values()))
        while some := tuple(islice(names, _REHOMED_AT_ONCE)):
            for watched in some:
                if self._names.get(watched.name) is watched:
                    self._rehome_one(watched)
            await asyncio.sleep(0)

    def _rehome_one(self, watched: WatchedName) -> None:
        holder = watched.holders[0]
        try:
            if self._home_of(holder) == watched.home.shard_id:
                return
        except MetadataError:
            return
        watched.home.discard(watched)
        moved = self._home_watch(holder).add(holder)
        moved.holders, self._names[watched.name] = watched.holders, moved

    def synced(self) -> None:
        """Acknowledge to home shards that a broker has synced more, or that a session has ended."""
        for session in tuple(self._left):
            self._drop_left(session)
        for home in self._home_watches.values():
            home.synced()

    # Inside -----------------------------------------------------------------------------------

    def _drop_left(self, session: DeliverySequence) -> None:
        left = self._left[session]
        while left:
            sequence = self._leaving.get(left[0], 0)
            if session.ended is None and sequence > session.acked:
                return
            self.drop(left.popleft())
        del self._left[session]

    def _follow(self, sent: Sent) -> None:
        self._names[sent.name] = self._home_watch(sent).add(sent)

    def _home_of(self, sent: Sent) -> int:
        return self._homes.home_of(sent.kind, sent.name, sent.object_id)

    def _is_of_another(self, watched: WatchedName, sent: Sent) -> bool:
        """Return whether a name is followed where an earlier topic of that name has its home: it
        was renamed, and ``sent`` got the name."""
        holder = watched.holders[0]
        if sent.kind != KIND_TOPIC or holder.object_id == sent.object_id:
            return False
        return watched.home.shard_id != self._home_of(sent)

    def _give_up_name(self, watched: WatchedName) -> None:
        """Stop following a name for those who have another object by it, which has left it."""
        del self._names[watched.name]
        watched.home.discard(watched)
        for holder in watched.holders:
            self._confirm_later(holder)

    def _home_watch(self, sent: Sent) -> HomeWatch:
        """Return the watch at the shard that has the slot of an object."""
        shard_id = self._home_of(sent)
        home = self._home_watches.get(shard_id)
        if home is None:
            stream = self._homes.watch(shard_id, self._subscriber_id)
            stream.complete_with(partial(self._complete_term, shard_id))
            home = HomeWatch(shard_id, stream, self._clock, self._changed)
            self._home_watches[shard_id] = home
        return home

    def _complete_term(self, shard_id: int) -> int:
        """Return the noted term of a home shard if all that brokers hold of it is watched, or 0."""
        is_complete = self._home_watches[shard_id].is_complete and self.are_reported()
        return self.term_of(shard_id) if is_complete else 0

    def _changed(self, watched: WatchedName, deleted_id: str) -> None:
        """Deliver the change of an object to the sessions that have it."""
        for sent in tuple(watched.holders):
            if sent in self._leaving:
                watched.home.pending.add(watched.came_at, sent.session, self._leaving[sent])
            elif deleted_id:
                if sent.object_id == deleted_id:
                    self._remove(sent)
            else:
                self._compare(sent, watched)

    def _compare(self, sent: Sent, watched: WatchedName) -> None:
        state = watched.state
        if state is None or id_of(state) != sent.object_id:
            self._confirm_later(sent)
        else:
            self._bring(sent, state, watched)

    def _bring(self, sent: Sent, state: MetadataState, watched: WatchedName | None) -> None:
        """Deliver ``state`` if it is later than what was sent, and follow it by its name."""
        if state.version > sent.version:
            if not self._has_room(sent):
                return
            sent.version = state.version
            self._deliver(sent, change_delivery(state), watched)
        if state.version == sent.version and state.name != sent.name:
            self.rename(sent, state.name)

    def _remove(self, sent: Sent) -> None:
        sent.is_gone = True
        if self._has_room(sent):
            watched = self._names.get(sent.name)
            self.drop(sent)
            sent.session.metadata.forget(sent)
            removal = removal_delivery(sent.kind, sent.name, sent.object_id)
            self._deliver(sent, removal, watched)

    def _has_room(self, sent: Sent) -> bool:
        if sent.session.unsynced < METADATA_DELTAS_UNSYNCED_MAX:
            return True
        sent.session.metadata.behind[sent] = None
        self._deliver_later(sent)
        return False

    def _deliver(self, sent: Sent, delivery: Delivery, watched: WatchedName | None) -> None:
        kind = delivery.WhichOneof("body")
        assert kind is not None, "a change of nothing"
        sequence = sent.session.append(delivery)
        if watched is not None:
            watched.home.pending.add(watched.came_at, sent.session, sequence)
        self._on_delivery(kind)

    def _deliver_later(self, sent: Sent) -> None:
        watched = self._names.get(sent.name)
        if watched is not None:
            delivery = watched.home.pending.add(watched.came_at, sent.session, None)
            self._late.setdefault(sent, []).append(delivery)

    def _place_late(self, sent: Sent) -> None:
        """Give the late deliveries of ``sent`` the sequence's end: it has the newest state."""
        for delivery in self._late.pop(sent, ()):
            delivery.sequence = sent.session.sequence

    # Deletions to confirm ---------------------------------------------------------------------

    def _confirm_later(self, sent: Sent) -> None:
        """Have the home shard's leader confirm the deletion: a deleted id never returns."""
        if sent not in self._unconfirmed:
            self._unconfirmed[sent] = None
            self._deliver_later(sent)
        if self._settling is None or self._settling.done():
            self._settling = keep("metadata_existence_checks", self._settle)

    async def _settle(self) -> None:
        while self._unconfirmed:
            checked = list(islice(self._unconfirmed, METADATA_EXISTENCE_CHECKS_PER_READ_MAX))
            try:
                await self._settle_some(checked)
            except MetadataError as error:
                _logger.info("metadata is not known to be gone", why=str(error))
                await asyncio.sleep(METADATA_WATCH_RETRY_MS / 1000)

    async def _settle_some(self, checked: Sequence[Sent]) -> None:
        names = _distinct((sent.kind, sent.name) for sent in checked)
        items = await self._metadata.read(
            [ObjectName(kind=kind, name=name) for kind, name in names],
            timeout_ms=_EXISTENCE_TIMEOUT_MS,
        )
        if len(items) != len(names):
            raise Unavailable(f"{len(names)} objects read, {len(items)} came")
        states = {name: state_of(item) for (_, name), item in zip(names, items, strict=True)}
        for sent in checked:
            if sent not in self._unconfirmed:
                continue
            del self._unconfirmed[sent]
            state = states[sent.name]
            if state is None or id_of(state) != sent.object_id:
                self._remove(sent)
            elif state.name != sent.name:
                self._bring(sent, state, self._names.get(sent.name))
            if sent not in sent.session.metadata.behind:
                self._place_late(sent)
        self.synced()


def _distinct(pairs: Iterable[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
    return list(dict.fromkeys(pairs))
