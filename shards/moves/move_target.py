"""Where a unit may be moved to: live brokers with a lease, room, and its rules' consent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import TopicName
from shards.assignment.placement_policies import PlacementPolicies, Rules
from shards.assignment.unit_placer import PlacementRound, UnitPlacer
from shards.domain.assignment import Assignment
from shards.domain.placement.choice import PlacementDecision
from shards.domain.topic import Topic

Said = Mapping[str, Policies | MetadataError]
"""By namespace: what it and its tenant say, or why that is not known."""


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """A session that was chosen, and why."""

    broker_id: str
    session_id: str
    decision: PlacementDecision


class Room:
    """The candidates of one moment; each unit that is placed takes one of a session's units."""

    def __init__(self, placing: PlacementRound) -> None:
        self._placing = placing

    def choose(
        self,
        name: TopicName,
        topic: Topic,
        assignment: Assignment,
        said: Said,
        broker_id: str,
        asked_by: str,
    ) -> MoveTarget | Rejected | None:
        """Return where a unit goes, why nowhere, or None if it is there already.

        ``broker_id`` "" means any broker but its own.
        """
        if broker_id == assignment.broker_id and self._placing.has_session(assignment.session_id):
            return None
        parents = said[name.namespace_text]
        if isinstance(parents, MetadataError):
            return _unread(name, parents)
        placement = self._placing.place(
            topic,
            assignment,
            parents,
            target=broker_id,
            avoid=(assignment.session_id,),
            asked_by=asked_by,
        )
        if isinstance(placement, Rejected):
            return placement
        return MoveTarget(placement.broker_id, placement.session_id, placement.decision)

    def take(
        self,
        name: TopicName,
        topic: Topic,
        assignment: Assignment,
        rules: Rules,
        target: MoveTarget,
    ) -> Rejected | None:
        """Take a unit of a target that was chosen before; return why not if that cannot be."""
        if not self._placing.has_session(target.session_id):
            return Rejected(RejectionCode.NO_BROKER, f"broker {target.broker_id} began anew")
        parents = rules.of(name.namespace_text)
        if isinstance(parents, MetadataError):
            return _unread(name, parents)
        placement = self._placing.place(topic, assignment, parents, target=target.broker_id)
        return placement if isinstance(placement, Rejected) else None

    def end(self) -> None:
        """Ask for more capacity if what was just planned leaves little."""
        self._placing.end()


class MoveTargets:
    """The brokers that one shard may move units to, for one term."""

    def __init__(self, placer: UnitPlacer, policies: PlacementPolicies) -> None:
        self._placer = placer
        self._policies = policies

    async def rules_of(self, names: Sequence[TopicName]) -> Said:
        """Return what is said of the units' namespaces; read, where it is not known here."""
        return await self._policies.find([name.namespace_text for name in names])

    def deciding(self, names: Iterable[TopicName]) -> AbstractAsyncContextManager[Rules]:
        """Give what is said of the units' namespaces; see ``PlacementPolicies.deciding``."""
        return self._policies.deciding(name.namespace_text for name in names)

    def room(self) -> Room:
        """Return the candidates as they are. To be used without an await."""
        return Room(self._placer.begin())


def _unread(name: TopicName, error: MetadataError) -> Rejected:
    why = f"the placement rules of {name.namespace_text} cannot be read: {error}"
    return Rejected(RejectionCode.NO_BROKER, why)
