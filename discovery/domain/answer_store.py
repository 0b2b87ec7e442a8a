"""The compact store of cached answers: by topic name, in two generations, within a limit.

    answer   ── cut around what answers of one permit share ──▶  start | common | end
    packed   tag of (permit, common) | start | mark | end        bytes: one object for each answer
    at_hand  name ─▶ (answer, permit)                            whole, for some of those in use

A million answers are kept, so an answer is one bytes object beside its name: no tuple, which would
have every full garbage collection visit a million of them. The broker's addresses, its session and
the epoch are the same bytes in all its answers and are stored once. Putting an answer together
takes a tenth of a microsecond more than reading a whole one, so answers in frequent use are
``at_hand``.
"""

from __future__ import annotations

from itertools import islice
from typing import Generic, TypeVar

PermitT = TypeVar("PermitT")

VICTIMS_PER_SCAN = 4_096
"""Names of the old generation that are listed at a time, oldest first. A scan passes the places of
all that have left, which takes a millisecond or two for a million."""

SECOND_CHANCES_MAX = 64
"""Answers in frequent use that one eviction may spare: it has to end within a turn of the loop."""

FINDS_PER_ENTRY_AT_HAND = 8
"""Of so many answers that are found in a generation one comes to be at hand. Names in frequent use
come to be soon. Those of a set far larger than ``at_hand`` do not drive each other out for
nothing."""

_TAG_BYTES = 3
_TAGS_MAX = 1 << (8 * _TAG_BYTES)

_MARK = b"\xff"
"""Stands for the common part. UTF-8 has no such byte, but the length of a message may."""

Found = tuple[bytes, PermitT]


class _Shared(Generic[PermitT]):
    """What answers of one permit have in common, and how many of them refer to it."""

    __slots__ = ("common", "permit", "tag", "uses")

    def __init__(self, permit: PermitT, common: bytes, tag: bytes) -> None:
        self.permit = permit
        self.common = common
        self.tag = tag
        self.uses = 0


class AnswerStore(Generic[PermitT]):
    """Encoded answers by topic name, each with the permit it depends on.

    At most ``answers_max`` are kept: one more drops an old one, one that was neither put nor found
    since all others were, if there is one, the first put first. At most ``at_hand_max`` are kept
    whole besides, and ``shared_max`` common parts: answers beyond those are stored uncut.
    """

    def __init__(self, *, answers_max: int, at_hand_max: int, shared_max: int) -> None:
        assert 1 <= answers_max <= _TAGS_MAX, "each answer may need a tag of its own"
        self.at_hand: dict[str, Found[PermitT]] = {}
        """Some of the answers, whole, for reading without a call. Only the store changes it."""
        self._answers_max = answers_max
        self._at_hand_max = at_hand_max
        self._shared_max = shared_max
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._victims: list[str] = []
        """Names of the old generation, the next one to be dropped last. Some may have left it."""
        self._shared: dict[bytes, _Shared[PermitT]] = {}
        """By tag."""
        self._tags: dict[tuple[PermitT, bytes], bytes] = {}
        self._free_tags: list[bytes] = []
        self._finds = 0

    def __repr__(self) -> str:
        return (
            f"<AnswerStore answers={len(self)} shared={len(self._shared)} "
            f"at_hand={len(self.at_hand)}>"
        )

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def shared_count(self) -> int:
        """Common parts that answers refer to."""
        return len(self._shared)

    def put(self, topic: str, answer: bytes, permit: PermitT, *, topic_id: str) -> None:
        """Keep ``answer`` about ``topic``, in place of an earlier one.

        What is between the topic's name and its id in the answer is stored once for all answers of
        the permit that have the same there.
        """
        self.remove(topic)
        if len(self) >= self._answers_max:
            self._evict()
        self._young[topic] = self._packed(answer, permit, topic, topic_id)

    def find(self, topic: str) -> Found[PermitT] | None:
        """Return the answer about ``topic`` and its permit, None if there is none.

        It counts as used. CALL it only for names that are not ``at_hand``.
        """
        packed = self._used(topic)
        if packed is None:
            return None
        found = self._unpacked(packed)
        if not self._finds:
            self._lay_at_hand(topic, found)
        return found

    def find_permit(self, topic: str) -> PermitT | None:
        """Return the permit of the answer about ``topic``, as ``find`` and at less cost."""
        packed = self._used(topic)
        if packed is None:
            return None
        if not self._finds:
            self._lay_at_hand(topic, self._unpacked(packed))
        return self._shared[packed[:_TAG_BYTES]].permit

    def peek(self, topic: str) -> bytes | None:
        """Return the answer about ``topic``, None if there is none; it does not count as used."""
        packed = self._young.get(topic) or self._old.get(topic)
        return None if packed is None else self._unpacked(packed)[0]

    def remove(self, topic: str) -> None:
        """Forget the answer about ``topic``, if there is one."""
        self.at_hand.pop(topic, None)
        packed = self._young.pop(topic, None) or self._old.pop(topic, None)
        if packed is not None:
            self._release(packed)

    # Inside -----------------------------------------------------------------------------------

    def _used(self, topic: str) -> bytes | None:
        packed = self._young.get(topic)
        if packed is None:
            packed = self._old.pop(topic, None)
            if packed is None:
                return None
            self._young[topic] = packed
        self._finds = (self._finds + 1) % FINDS_PER_ENTRY_AT_HAND
        return packed

    def _lay_at_hand(self, topic: str, found: Found[PermitT]) -> None:
        if len(self.at_hand) >= self._at_hand_max:
            self.at_hand.clear()
        self.at_hand[topic] = found

    def _evict(self) -> None:
        """Drop one answer. What is at hand is in use though it is not found: it gets a chance."""
        chances = SECOND_CHANCES_MAX
        while True:
            topic = self._next_victim()
            packed = self._old.pop(topic, None)
            if packed is None:
                continue
            if self.at_hand.pop(topic, None) is None or not chances:
                self._release(packed)
                return
            chances -= 1
            self._young[topic] = packed

    def _next_victim(self) -> str:
        if not self._victims:
            if not self._old:
                self._old, self._young = self._young, {}
            self._victims = list(islice(self._old, VICTIMS_PER_SCAN))
            self._victims.reverse()
        return self._victims.pop()

    def _packed(self, answer: bytes, permit: PermitT, topic: str, topic_id: str) -> bytes:
        name = topic.encode()
        start = answer.find(name) + len(name)
        end = answer.rfind(topic_id.encode(), start)
        common = answer[start:end] if end > start else b""
        is_known = (permit, common) in self._tags
        if _MARK in answer[:start] or not (is_known or len(self._shared) < self._shared_max):
            # Whatever an answer has, it is given as it came: here the mark is its first byte.
            start, common = 0, b""
        shared = self._share(permit, common)
        shared.uses += 1
        return shared.tag + answer[:start] + _MARK + answer[start + len(common) :]

    def _unpacked(self, packed: bytes) -> Found[PermitT]:
        shared = self._shared[packed[:_TAG_BYTES]]
        return packed[_TAG_BYTES:].replace(_MARK, shared.common, 1), shared.permit

    def _share(self, permit: PermitT, common: bytes) -> _Shared[PermitT]:
        tag = self._tags.get((permit, common))
        if tag is not None:
            return self._shared[tag]
        if self._free_tags:
            tag = self._free_tags.pop()
        else:
            tag = len(self._shared).to_bytes(_TAG_BYTES, "big")
        self._tags[permit, common] = tag
        shared = self._shared[tag] = _Shared(permit, common, tag)
        return shared

    def _release(self, packed: bytes) -> None:
        shared = self._shared[packed[:_TAG_BYTES]]
        shared.uses -= 1
        if not shared.uses:
            del self._shared[shared.tag]
            del self._tags[shared.permit, shared.common]
            self._free_tags.append(shared.tag)
