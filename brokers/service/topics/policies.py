"""Applies the policies of tenants, namespaces and topics to the open topics of a broker.

A topic keeps the last policy that it got until the present session delivers another one. Before a
new session has delivered its metadata, nothing newer is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from brokers.domain.holding import Assignment, Holding, TopicMetadata
from brokers.domain.session import ChangedMetadata
from brokers.domain.storage_policy import StoragePolicy, effective
from brokers.service.topics.topic import Topic
from nextgen.kernel.governance.client_limits import TopicLimits


class TopicPolicies:
    """``opened`` are the open topics by canonical name; ``OpenTopics`` keeps the mapping.

    ``own`` is the broker's own policy: it applies to every field that no object sets.
    """

    def __init__(
        self, holding: Callable[[], Holding], opened: Mapping[str, Topic], own: StoragePolicy
    ) -> None:
        self._holding = holding
        self._opened = opened
        self._own = own

    def of(self, assignment: Assignment) -> StoragePolicy:
        """Return the effective policy of a unit by the present holding."""
        return effective(self._holding().policies(assignment), self._own)

    def assigned(self, assignment: Assignment, topic: Topic | None = None) -> None:
        """Apply the present policy to the open topic of a held unit, or to ``topic``."""
        topic = topic or self._opened.get(assignment.name)
        if topic is None or topic.unit.key != assignment.key:
            return
        if not self._holding().has_metadata(assignment):
            return
        policy = self.of(assignment)
        if policy != topic.policy:
            topic.use_policy(policy)

    def use_limits(self, limits: TopicLimits) -> None:
        """Set the broker's own limits of clients, and apply them to all open topics."""
        if limits == self._own.limits:
            return
        self._own = replace(self._own, limits=limits)
        for topic in tuple(self._opened.values()):
            assignment = self._holding().assigned(topic.unit.name)
            if assignment is not None:
                self.assigned(assignment, topic)

    def changed(self, changed: ChangedMetadata) -> None:
        """Apply an object's changed policies to all open topics that they concern."""
        for assignment in self._concerned(changed):
            self.assigned(assignment)

    def _concerned(self, changed: ChangedMetadata) -> Iterator[Assignment]:
        holding = self._holding()
        if isinstance(changed, TopicMetadata):
            for unit in tuple(holding.units(changed.topic_id)):
                yield holding.assignments[(changed.topic_id, unit)]
            return
        # This is rare, and iterating over ten thousand names takes a millisecond or two.
        below = f"://{changed.name}/"
        for name in tuple(self._opened):
            if below in name:
                assignment = holding.assigned(name)
                if assignment is not None:
                    yield assignment
