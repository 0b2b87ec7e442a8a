"""From the names in a request to the topics and assignments that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import InvalidName, TopicName, parse_topic
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from shards.assignment.unit_answers import UnitAnswers
from shards.domain.assignment import Assignment, unit_key
from shards.domain.slot_moves.keys import slot_of_state
from shards.domain.states import StateKind
from shards.domain.topic import Topic
from shards.state.shard_state import ShardState
from shards.state.state_reads import StateReads
from shards.state.topic_names import TopicNames


class UnitReads:
    """Reads the units of one shard by name, for one term."""

    def __init__(self, reads: StateReads, names: TopicNames, answers: UnitAnswers) -> None:
        self._reads = reads
        self._names = names
        self._answers = answers

    def parse(
        self, topics: Iterable[str], answers: dict[str, LookupAnswer]
    ) -> dict[str, TopicName]:
        """Return the names by text, each once; ``answers`` gets a rejection of each invalid one.

        Raises:
            StaleShardMap: A name is of another shard.
        """
        names: dict[str, TopicName] = {}
        for text in topics:
            if text in names or text in answers:
                continue
            try:
                name = parse_topic(text)
            except InvalidName as error:
                answers[text] = self._invalid(text, str(error))
                continue
            if name.text != text:
                answers[text] = self._invalid(text, f"{text!r} is not canonical, {name.text!r} is")
                continue
            self._names.check(name)
            names[text] = name
        return names

    def load(self, names: Sequence[TopicName]) -> list[tuple[Topic | None, Assignment | None]]:
        """Return topic and assignment of each name, pending changes included."""
        topics = self._reads.load_topics([name.base_text for name in names])
        keys = [
            unit_key(topic.topic_id, name.unit.text) if topic is not None else None
            for name, topic in zip(names, topics, strict=True)
        ]
        found = self._reads.load_assignments([key for key in keys if key is not None])
        rest = iter(found)
        return [
            (topic, None if key is None else _of_name(next(rest), name))
            for topic, key, name in zip(topics, keys, names, strict=True)
        ]

    def _invalid(self, text: str, why: str) -> LookupAnswer:
        return self._answers.rejected(text, RejectionCode.INVALID_NAME, why)


def load_own(
    state: ShardState, units: UnitReads, names: Sequence[TopicName]
) -> list[tuple[Topic | None, Assignment | None]]:
    """Return topic and assignment of those of ``names`` that may be this shard's.

    A renamed topic is where it was created, whatever slot its name has.
    """
    has = state.slots.has
    if not state.reads.total(StateKind.FORMER_NAME):
        return units.load([name for name in names if has(slot_of(name.routing_key))])
    return [
        (topic, assignment)
        for topic, assignment in units.load(names)
        if topic is not None and has(_home_slot(topic))
    ]


def _home_slot(topic: Topic) -> int:
    slot = slot_of_state(StateKind.TOPIC, topic.name, topic)
    assert slot is not None, "a topic has a slot"
    return slot


def _of_name(assignment: Assignment | None, name: TopicName) -> Assignment | None:
    """Return ``assignment`` unless it is of a segment that ``name`` gives another range."""
    if assignment is None or name.segment is None or assignment.name == name.text:
        return assignment
    return None
