"""Which names of topics lead to what is in this shard, for one term. Awaits nothing.

A topic is at home in the shard that has the slot in its id; usually that is its name's slot, too. A
renamed one is not found by the hash of its name: its shard answers for the name if it has the row.
The shard with the name's slot has a pointer (``shards.inventory.renames.pointers``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nextgen.kernel.errors import StaleShardMap
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import TopicName, parse_topic
from shards.domain.renames.names import FormerName, TopicPointer
from shards.domain.states import StateKind
from shards.domain.topic import Topic
from shards.state.shard_slots import ShardSlots
from shards.state.state_reads import StateReads


@dataclass(frozen=True, slots=True)
class LeadsElsewhere:
    """A name of which this shard has the slot and a pointer, but neither the topic nor its home."""

    name: TopicName
    pointer: TopicPointer

    @property
    def home_slot(self) -> int:
        return home_slot_of(self.pointer.topic_id, self.name)


class TopicNames:
    """The names of one shard's topics. ``clock_ms`` is the leader's, by which names expire."""

    def __init__(
        self, shard_id: int, reads: StateReads, slots: ShardSlots, clock_ms: Callable[[], int]
    ) -> None:
        self._shard_id = shard_id
        self._reads = reads
        self._slots = slots
        self._clock_ms = clock_ms

    @property
    def have_pointers(self) -> bool:
        return self._reads.total(StateKind.TOPIC_NAME) > 0

    @property
    def have_renamed(self) -> bool:
        """Whether the shard has a topic that was ever renamed: such a one has a former name."""
        return self._reads.total(StateKind.FORMER_NAME) > 0

    def pointer(self, base_text: str) -> TopicPointer | None:
        """Return the pointer under the name ``TopicName.base_text``."""
        state = self._reads.load(StateKind.TOPIC_NAME, (base_text,))[base_text]
        assert state is None or isinstance(state, TopicPointer)
        return state

    def pointers(self, base_texts: Iterable[str]) -> Mapping[str, TopicPointer]:
        """Return the pointers under these names, by name."""
        found = self._reads.load(StateKind.TOPIC_NAME, list(base_texts))
        return {name: each for name, each in found.items() if isinstance(each, TopicPointer)}

    def former(self, base_text: str) -> FormerName | None:
        """Return what is kept of a former name, expired or not."""
        if not self.have_renamed:
            return None
        state = self._reads.load(StateKind.FORMER_NAME, (base_text,))[base_text]
        assert state is None or isinstance(state, FormerName)
        return state

    def current(self, name: TopicName) -> TopicName:
        """Return the present name of the topic, or the unit, that ``name`` leads to.

        It is ``name`` itself unless that is a former one whose time is not over.
        """
        # The topic first: nearly always it is there, and the request needs it anyway.
        if not self.have_renamed or self._topic(name.base_text) is not None:
            return name
        former = self.former(name.base_text)
        if former is None or not self._leads(former):
            return name
        current = parse_topic(former.current)
        return current if name.partition is None else current.of_partition(name.partition)

    def was_renamed(self, name: TopicName) -> bool:
        """Return whether ``name`` is a former one that leads to a topic still."""
        return self.current(name) is not name

    def has(self, name: TopicName) -> bool:
        """Return whether this shard answers for ``name``: it has its slot, or the topic."""
        return self.has_slot(name) or self._is_home(name)

    def has_slot(self, name: TopicName) -> bool:
        """Return whether this shard has the slot that ``name`` hashes to: only there a topic of
        this name is created."""
        return self._slots.has(slot_of(name.routing_key))

    def home_slot(self, name: TopicName) -> int | None:
        """Return the slot of the renamed topic that ``name`` leads to here, None if it leads to
        none."""
        if not self.have_renamed:
            return None
        topic = self._topic(self.current(name).base_text)
        return None if topic is None else home_slot_of(topic.topic_id, name)

    def check(self, name: TopicName) -> None:
        """Check that this shard answers for ``name``.

        Raises:
            StaleShardMap: It does not; a caller that was led here by the name goes by its hash.
            SlotsComing: It does not yet.
        """
        slot = slot_of(name.routing_key)
        if not self._slots.has(slot) and not self._is_home(name):
            refusal = self._slots.refusal(slot)
            refusal.moved_names[name.routing_key] = slot
            raise refusal

    def lacking(self, names: Iterable[TopicName]) -> dict[str, int]:
        """Return the routing keys of ``names`` for which this shard does not answer, each with its
        own slot."""
        return {name.routing_key: slot_of(name.routing_key) for name in names if not self.has(name)}

    def leading_elsewhere(self, names: Iterable[TopicName]) -> list[LeadsElsewhere]:
        """Return those of ``names`` that are known here only by a pointer to another shard."""
        if not self.have_pointers:
            return []
        asked = {name.base_text: name for name in names}
        # The topics first, as in ``current``: one that is here needs no look for a pointer.
        topics = self._reads.load_topics(list(asked))
        # Not those rows of topics whose home slots have left that are not removed yet.
        absent = [text for text, topic in zip(asked, topics, strict=True) if topic is None]
        found = self.pointers(absent) if absent else {}
        elsewhere = [LeadsElsewhere(asked[text], pointer) for text, pointer in found.items()]
        return [
            each
            for each in elsewhere
            if self._slots.has(slot_of(each.name.routing_key))
            and not self._slots.has(each.home_slot)
        ]

    def refusal(self, names: Sequence[LeadsElsewhere]) -> StaleShardMap:
        """Return the refusal of a request with names that lead elsewhere.

        It says where the home slot of one of them went, if this shard gave it away just now: the
        caller's map may not know it yet.
        """
        moved = {each.name.routing_key: each.home_slot for each in names}
        gone = (self._slots.refusal(each.home_slot) for each in names)
        went = next((each for each in gone if each.moved_to), None)
        return StaleShardMap(
            f"{', '.join(list(moved)[:3])} may lead to a renamed topic elsewhere",
            0 if went is None else went.shard_map_version,
            moved_to=0 if went is None else went.moved_to,
            moved_slots=() if went is None else went.moved_slots,
            moved_names=moved,
        )

    def _topic(self, base_text: str) -> Topic | None:
        return self._reads.load_topic(base_text)

    def _is_home(self, name: TopicName) -> bool:
        if not self.have_renamed:
            return False
        topic = self._topic(name.base_text)
        if topic is not None:
            return self._has_home(topic.topic_id)
        former = self.former(name.base_text)
        return former is not None and self._leads(former) and self._has_home(former.topic_id)

    def _has_home(self, topic_id: str) -> bool:
        return is_id(topic_id) and self._slots.has(slot_of_id(topic_id))

    def _leads(self, former: FormerName) -> bool:
        return self._clock_ms() < former.until_ms


def home_slot_of(topic_id: str, name: TopicName) -> int:
    """Return the slot in a topic's id; that of its name if the id does not say one."""
    return slot_of_id(topic_id) if is_id(topic_id) else slot_of(name.routing_key)
