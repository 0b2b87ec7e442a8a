"""A short-lived cache of names that a shard has answered as absent.

Theory of operation. A lookup of an absent name costs its shard's leader as much as any other, and
no assignment ever ends it. So the answer is cached, and kept true by the same watch as answers
about brokers (ADR 0061):

    position   the watch has named every topic of the shard that was created up to it
    floor      what this process knows of the shard besides, by creating topics itself
    until      the time up to which the shard's answers may be given: the watch's lease

An absence as of position p is cached only if no creation up to p is missing here (p >= position, p
>= floor): the watch will name every creation behind p, or this process carries it out. Either ends
the absence. It ends with the lease, and after ``ttl_ms`` in any case.

A shard names creations soon only while its absences are in use, because that costs it an update for
each of them. After ``idle_ms`` without a use no absence of the shard is given: the next lookup goes
to the shard and begins the use again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from nextgen.kernel.routing.names import Domain

NEVER = float("-inf")

_NO_POSITIONS: Mapping[int, int] = {}
_SCALABLE: Final = f"{Domain.TOPIC}://"
_PERSISTENT: Final = f"{Domain.PERSISTENT}://"


class _Followed:
    """The positions between which all creations of one shard are known. Replaced as a whole."""

    __slots__ = ("position", "shard_id", "until", "used_until")

    def __init__(self, shard_id: int, position: int) -> None:
        self.shard_id = shard_id
        self.position = position
        self.until = NEVER
        self.used_until = NEVER
        """Up to when the shard's absences count as in use."""


class _Absence(NamedTuple):
    answer: bytes
    shard: _Followed
    until: float
    base: str
    """The topic of the name: the name itself, or the topic of which it would be a partition."""


class AbsentNames:
    """Encoded answers about absent names. Times are seconds of any clock that never goes back.

    At most ``names_max`` names and ``answer_bytes_max`` bytes of answers are kept; the oldest go
    first, which are the first that expire. Owned by one event loop.
    """

    def __init__(self, *, names_max: int, answer_bytes_max: int, ttl_ms: int, idle_ms: int) -> None:
        self._names_max = names_max
        self._answer_bytes_max = answer_bytes_max
        self._ttl_s = ttl_ms / 1_000
        self._idle_s = idle_ms / 1_000
        self._absences: OrderedDict[str, _Absence] = OrderedDict()
        self._answer_bytes = 0
        self._partitions: dict[str, set[str]] = {}
        """The names that would be partitions of a topic, by its name."""
        self._shards: dict[int, _Followed] = {}
        self._floors: dict[int, int] = {}
        """By shard, the last position at which this process created a topic."""
        self._listeners: dict[int, Callable[[], None]] = {}
        self.answered = 0
        """Lookups that were answered from here, since the start."""

    def __repr__(self) -> str:
        return f"<AbsentNames names={len(self)} bytes={self._answer_bytes}>"

    def __len__(self) -> int:
        return len(self._absences)

    # What lookups ask -------------------------------------------------------------------------

    def find(self, name: str, now: float, known: Mapping[int, int] = _NO_POSITIONS) -> bytes | None:
        """Return the cached answer that ``name`` is absent, None without one.

        ``known`` are positions of shards that the caller knows: the answer was true at these or
        later.
        """
        absence = self._absences.get(name)
        if absence is None or absence.until <= now:
            return None
        shard = absence.shard
        if shard.until <= now or shard.used_until <= now:
            return None
        if known and known.get(shard.shard_id, 0) > shard.position:
            return None
        shard.used_until = now + self._idle_s
        self.answered += 1
        return absence.answer

    def fill(
        self,
        names: Sequence[str],
        answers: list[bytes],
        missing: list[int],
        now: float,
        *,
        known: Mapping[int, int],
        asked_anew: Container[int],
    ) -> None:
        """Fill in cached answers at the ``missing`` places, and remove those from it.

        Places in ``asked_anew`` stay missing: their lookup must go to the shard.
        """
        if not self._absences:
            return
        left = []
        for place in missing:
            answer = None if place in asked_anew else self.find(names[place], now, known)
            if answer is None:
                left.append(place)
            else:
                answers[place] = answer
        missing[:] = left

    # What shards answered ---------------------------------------------------------------------

    def put(
        self, shard_id: int, name: str, base: str, answer: bytes, *, position: int, now: float
    ) -> bool:
        """Cache that ``name`` was absent at ``position``; return False if it may exist by now."""
        shard = self._shards.get(shard_id)
        if shard is None or position < max(shard.position, self._floors.get(shard_id, 0)):
            return False
        self._drop(name)
        while self._absences and self._is_full(len(answer), now):
            self._drop(next(iter(self._absences)))
        if len(answer) > self._answer_bytes_max:
            return False
        self._absences[name] = _Absence(answer, shard, now + self._ttl_s, base)
        self._answer_bytes += len(answer)
        if base != name:
            self._partitions.setdefault(base, set()).add(name)
        is_first = shard.used_until <= now
        shard.used_until = now + self._idle_s
        if is_first and shard_id in self._listeners:
            self._listeners[shard_id]()
        return True

    def forget(self, name: str) -> None:
        """Drop ``name``: the shard has answered that it exists."""
        self._drop(name)

    def created_here(self, shard_id: int, position: int, names: Iterable[str]) -> None:
        """Drop topics that this process had created, up to ``position`` of their shard.

        Call it BEFORE the creator is answered, because it will look the topic up next.
        """
        self._floors[shard_id] = max(self._floors.get(shard_id, 0), position)
        self._end(names)

    # What the watch tells ---------------------------------------------------------------------

    def created(self, shard_id: int, names: Iterable[str], *, position: int) -> None:
        """Drop topics that the watch reports as created.

        ``position`` is that of the watch before this update: a shard that was not followed yet is
        followed from there on.
        """
        if shard_id not in self._shards:
            self._shards[shard_id] = _Followed(shard_id, position)
        self._end(names)

    def advance(self, shard_id: int, position: int) -> None:
        """Note that the watch has named every creation up to ``position``."""
        shard = self._shards.get(shard_id)
        if shard is not None:
            shard.position = max(shard.position, position)

    def renew(self, shard_id: int, until: float) -> None:
        """Extend the time up to which the shard's answers may be given to ``until``."""
        shard = self._shards.get(shard_id)
        if shard is not None:
            shard.until = until

    def is_used(self, shard_id: int, now: float) -> bool:
        """Return whether absences of the shard are in use: if so, its watch has to name creations
        soon.

        While it is False, no absence is given, so creations may be named late.
        """
        shard = self._shards.get(shard_id)
        return shard is not None and shard.used_until > now

    def on_used(self, shard_id: int, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever ``is_used`` becomes True for the shard."""
        self._listeners[shard_id] = listener

    def reset(self, shard_id: int) -> None:
        """Drop all names of a shard whose creations are not named any more, or were missed."""
        shard = self._shards.pop(shard_id, None)
        if shard is not None:
            shard.until = NEVER

    # ------------------------------------------------------------------------------------------

    def _is_full(self, answer_bytes: int, now: float) -> bool:
        oldest = next(iter(self._absences.values()))
        return (
            oldest.until <= now
            or len(self._absences) >= self._names_max
            or self._answer_bytes + answer_bytes > self._answer_bytes_max
        )

    def _end(self, names: Iterable[str]) -> None:
        if not self._absences:
            # As nearly always: of each topic that is created not even the name is decoded.
            return
        for name in names:
            self._end_topic(name)
            if name.startswith(_SCALABLE):
                # Its persistent name leads to the same topic, and is not named.
                self._end_topic(_PERSISTENT + name.removeprefix(_SCALABLE))

    def _end_topic(self, name: str) -> None:
        self._drop(name)
        for partition in self._partitions.pop(name, ()):
            self._drop(partition)

    def _drop(self, name: str) -> None:
        absence = self._absences.pop(name, None)
        if absence is None:
            return
        self._answer_bytes -= len(absence.answer)
        if absence.base != name:
            partitions = self._partitions.get(absence.base)
            if partitions is not None:
                partitions.discard(name)
                if not partitions:
                    del self._partitions[absence.base]
