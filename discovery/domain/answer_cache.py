"""The cache of lookup answers that may be given without a request to a shard.

Theory of operation. The cache follows each shard's assignments by one stream of deltas:

    position   everything up to it was delivered; the shard's deltas in (floor, position] are known
    floor      where the stream began, was reset, or where remembered deltas begin
    until      the time up to which the shard's answers may be given

An answer at position p is cached only if all deltas behind p are known (p >= floor) and the latest
one about its topic does not outdate it. A later delta that outdates the answer removes it. So every
answer from the cache was true at ``position`` or later, and ``until`` bounds how long ago
``position`` was the present.

Ending many answers at once must not search for them, so an answer refers to the *permit* of its
shard and broker session. Renewing or ending a permit renews or ends all its answers: each look-up
compares ``permit.until`` with the time. Answers without a valid permit are given up with the older
of the two generations of the store (ADR 0156).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from discovery.domain.answer_store import AnswerStore, Found
from nextgen.kernel.limits.discovery import (
    DISCOVERY_CACHE_AT_HAND_MAX,
    DISCOVERY_CACHE_SHARED_MAX,
)

NEVER = float("-inf")


class AnswerFacts(NamedTuple):
    """The facts that decide whether an answer is valid. It was true at ``position``.

    A tuple, because each first lookup and each change of an assignment makes one.
    """

    topic: str
    topic_id: str
    epoch: int
    broker_id: str
    session_id: str
    position: int
    broker_url: str = ""
    """Where Pulsar clients reach the broker; the same for all answers of a session."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One change of an assignment; ``broker_id`` is empty when it ended."""

    position: int
    topic: str
    topic_id: str
    epoch: int
    broker_id: str
    session_id: str

    def outdates(self, facts: AnswerFacts) -> bool:
        """Return whether this change outdates an answer with these facts.

        The epochs of one topic order its assignments. A topic that was deleted and created
        again begins anew with another id; then the positions decide.
        """
        if self.topic_id != facts.topic_id:
            return self.position > facts.position
        if not self.broker_id:
            return self.epoch >= facts.epoch
        return self.epoch > facts.epoch


Route = Sequence[bytes]
"""The common part of the answers to Pulsar clients about one broker session. Empty: no answer is
possible."""

NO_ROUTE: Route = ()

RouteMissing = Callable[[str, float], Route]
"""Returns the route of a name without a valid answer, at this time."""


HasLeft = Callable[[AnswerFacts], bool]
"""Returns whether a topic is another shard's by now, from the facts of an answer about it."""


class _Permit:
    """The time up to which answers of one shard and one broker session may be given."""

    __slots__ = ("broker_id", "heir", "route", "until")

    def __init__(self, broker_id: str, until: float, route: Route) -> None:
        self.broker_id = broker_id
        self.until = until
        self.route = route
        self.heir: tuple[_Permit, HasLeft] | None = None
        """The permit of all its answers except those about topics that left the shard. It is then
        not valid itself any more."""


class _Shard:
    """The known range of one shard's deltas."""

    __slots__ = ("deltas", "floor", "permits", "position", "until")

    def __init__(self, position: int) -> None:
        self.position = position
        self.floor = position
        self.until = NEVER
        self.deltas: dict[str, Delta] = {}
        """The latest delta of each topic, oldest first."""
        self.permits: dict[str, _Permit] = {}


_Entry = Found[_Permit]


class AnswerCache:
    """Encoded answers by topic name. Times are seconds of any clock that never goes back.

    ``facts_of`` reads the facts of an encoded answer, ``route_of`` makes a route of a broker's URL.
    At most ``answers_max`` answers are kept: the least recently used ones are dropped first,
    approximately.
    """

    def __init__(
        self,
        facts_of: Callable[[bytes], AnswerFacts],
        *,
        answers_max: int,
        aliases_max: int,
        deltas_max: int,
        at_hand_max: int = DISCOVERY_CACHE_AT_HAND_MAX,
        shared_max: int = DISCOVERY_CACHE_SHARED_MAX,
        route_of: Callable[[str], Route] = lambda _url: NO_ROUTE,
    ) -> None:
        self._facts_of = facts_of
        self._route_of = route_of
        self._route_missing: RouteMissing = lambda _name, _now: NO_ROUTE
        self._store: AnswerStore[_Permit] = AnswerStore(
            answers_max=answers_max, at_hand_max=at_hand_max, shared_max=shared_max
        )
        self._at_hand = self._store.at_hand
        self._aliases_max = aliases_max
        self._deltas_max = deltas_max
        self._aliases: dict[str, str] = {}
        self._shards: dict[int, _Shard] = {}

    def __repr__(self) -> str:
        return f"<AnswerCache answers={len(self)} shards={len(self._shards)}>"

    def __len__(self) -> int:
        return len(self._store)

    def position(self, shard_id: int) -> int:
        """Return the position up to which the shard's deltas were applied; 0 if it is not followed
        yet."""
        shard = self._shards.get(shard_id)
        return 0 if shard is None else shard.position

    def lookup(self, names: Sequence[str], now: float) -> tuple[list[bytes], list[int]]:
        """Return the answers in the order of ``names``, and the places without an answer.

        The answer at such a place is empty.
        """
        at_hand, find = self._at_hand, self._store.find
        answers: list[bytes] = []
        missing: list[int] = []
        for name in names:
            entry = at_hand.get(name)
            if entry is None:
                entry = find(name)
            if entry is None or entry[1].until <= now:
                entry = self._otherwise(name, now)
                if entry is None:
                    missing.append(len(answers))
                    answers.append(b"")
                    continue
            answers.append(entry[0])
        return answers, missing

    def route(self, name: str, now: float) -> Route:
        """Return the route of the broker that has ``name``; empty if no answer may be given.

        It is valid only in this turn of the event loop.
        """
        entry = self._at_hand.get(name)
        permit = self._store.find_permit(name) if entry is None else entry[1]
        if permit is None or permit.until <= now:
            entry = self._otherwise(name, now)
            if entry is None:
                return self._route_missing(name, now)
            permit = entry[1]
        return permit.route

    def route_missing_by(self, route_missing: RouteMissing) -> None:
        """Use ``route_missing`` for the routes of names without a cached answer.

        It is set once, because ``route`` runs for each lookup of a client.
        """
        self._route_missing = route_missing

    def has_answer(self, name: str, now: float) -> bool:
        """Return whether there is a valid answer about ``name``: then it exists and is assigned."""
        return not self.lookup((name,), now)[1]

    def insert(self, shard_id: int, encoded: bytes, facts: AnswerFacts) -> bool:
        """Cache an answer of the shard unless it may be outdated already."""
        shard = self._shards.get(shard_id)
        if shard is None or self.is_outdated(shard_id, facts):
            return False
        permit = shard.permits.get(facts.session_id)
        if permit is None:
            permit = _Permit(facts.broker_id, shard.until, NO_ROUTE)
            shard.permits[facts.session_id] = permit
        if not permit.route and facts.broker_url:
            # Not of the first answer alone: a session may begin before its broker speaks Pulsar.
            permit.route = self._route_of(facts.broker_url)
        self._store.put(facts.topic, encoded, permit, topic_id=facts.topic_id)
        return True

    def is_outdated(self, shard_id: int, facts: AnswerFacts) -> bool:
        """Return whether a delivered delta may outdate the answer.

        False does not prove that the answer is true: later deltas may not have been delivered yet.
        """
        shard = self._shards.get(shard_id)
        if shard is None:
            return False
        if facts.position < shard.floor:
            # What changed up to the floor was delivered, and acknowledged, without being kept.
            return True
        delta = shard.deltas.get(facts.topic)
        return delta is not None and delta.outdates(facts)

    def add_alias(self, spelling: str, topic: str) -> None:
        """Remember that ``spelling`` means ``topic``."""
        if len(self._aliases) >= self._aliases_max:
            self._aliases.clear()
        self._aliases[spelling] = topic

    def reset(self, shard_id: int, position: int) -> None:
        """Begin to follow the shard at ``position``; forget what is known of it."""
        shard = self._shards.get(shard_id)
        if shard is not None:
            for permit in shard.permits.values():
                permit.until = NEVER
        self._shards[shard_id] = _Shard(position)

    def release(self, shard_id: int, position: int, has_left: HasLeft) -> None:
        """Give no answers of the shard any more about topics for which ``has_left``.

        Other answers stay valid. Each is judged once, when it is next looked up, so this takes as
        long as the shard has sessions, however many answers there are. An answer from before
        ``position`` is not cached any more: it may be about a topic that left there.
        """
        shard = self._shards[shard_id]
        shard.floor = max(shard.floor, position)
        for session_id, permit in tuple(shard.permits.items()):
            heir = _Permit(permit.broker_id, permit.until, permit.route)
            permit.until, permit.heir = NEVER, (heir, has_left)
            shard.permits[session_id] = heir

    def apply(self, shard_id: int, position: int, deltas: Iterable[Delta]) -> None:
        """Apply the deltas up to ``position``, in order."""
        shard = self._shards[shard_id]
        for delta in deltas:
            # Removed first, so that the latest delta of a topic is last in the order.
            shard.deltas.pop(delta.topic, None)
            shard.deltas[delta.topic] = delta
            self._remove_outdated(delta)
        while len(shard.deltas) > self._deltas_max:
            oldest = next(iter(shard.deltas))
            shard.floor = max(shard.floor, shard.deltas.pop(oldest).position)
        shard.position = max(shard.position, position)

    def renew(self, shard_id: int, until: float) -> None:
        """Extend the time up to which the shard's answers may be given to ``until``."""
        shard = self._shards[shard_id]
        shard.until = until
        for permit in shard.permits.values():
            permit.until = until

    def end_sessions(self, has_ended: Callable[[str, str], bool]) -> int:
        """Forget the answers of all sessions for which ``has_ended(broker_id, session_id)``.

        Returns how many permits ended. The caller must not insert answers of such sessions.
        """
        ended = 0
        for shard in self._shards.values():
            for session_id, permit in tuple(shard.permits.items()):
                if has_ended(permit.broker_id, session_id):
                    permit.until = NEVER
                    del shard.permits[session_id]
                    ended += 1
        return ended

    def _otherwise(self, name: str, now: float) -> _Entry | None:
        """Find a valid answer under another spelling of ``name``, or one with an heir's permit."""
        topic = self._aliases.get(name, name)
        entry = self._at_hand.get(topic) or self._store.find(topic)
        if entry is not None and entry[1].heir is not None:
            entry = self._inherited(topic, entry)
        # An expired answer is kept: the stream may come back and renew its permit.
        return entry if entry is not None and entry[1].until > now else None

    def _inherited(self, topic: str, entry: _Entry) -> _Entry | None:
        """Store an answer anew under the permit that its own was replaced by, unless it left."""
        answer, permit = entry
        facts = self._facts_of(answer)
        while permit.heir is not None:
            heir, has_left = permit.heir
            if has_left(facts):
                self._store.remove(topic)
                return None
            permit = heir
        self._store.put(topic, answer, permit, topic_id=facts.topic_id)
        return answer, permit

    def _remove_outdated(self, delta: Delta) -> None:
        answer = self._store.peek(delta.topic)
        if answer is not None and delta.outdates(self._facts_of(answer)):
            self._store.remove(delta.topic)
