"""Finds targets of moves: live brokers with a lease and room that the unit's rules allow."""

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

PoliciesFound = Mapping[str, Policies | MetadataError]
"""By namespace: its policies merged with its tenant's, or the error of reading them."""


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The session chosen for a unit, and the decision record of the choice."""

    broker_id: str
    session_id: str
    decision: PlacementDecision


class Room:
    """The candidates at one moment. Each placement uses one unit of a session's lease."""

    def __init__(self, placing: PlacementRound) -> None:
        self._placing = placing

    def choose(
        self,
        name: TopicName,
        topic: Topic,
        assignment: Assignment,
        policies: PoliciesFound,
        broker_id: str,
        asked_by: str,
    ) -> MoveTarget | Rejected | None:
        """Return the target of a unit, why there is none, or None if it is there already.

        With an empty ``broker_id`` any broker but the unit's own may be chosen.
        """
        if broker_id == assignment.broker_id and self._placing.has_session(assignment.session_id):
            return None
        parents = policies[name.namespace_text]
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
        """Use one unit of a target chosen before; return why if that is not possible any more."""
        if not self._placing.has_session(target.session_id):
            return Rejected(RejectionCode.NO_BROKER, f"broker {target.broker_id} began anew")
        parents = rules.of(name.namespace_text)
        if isinstance(parents, MetadataError):
            return _unread(name, parents)
        placement = self._placing.place(topic, assignment, parents, target=target.broker_id)
        return placement if isinstance(placement, Rejected) else None

    def end(self) -> None:
        """End the round: request more capacity if the placements leave little."""
        self._placing.end()


class MoveTargets:
    """Targets of one shard's moves, for one term."""

    def __init__(self, placer: UnitPlacer, policies: PlacementPolicies) -> None:
        self._placer = placer
        self._policies = policies

    async def policies_of(self, names: Sequence[TopicName]) -> PoliciesFound:
        """Return the policies of the units' namespaces; reads those that are not known here."""
        return await self._policies.find([name.namespace_text for name in names])

    def deciding(self, names: Iterable[TopicName]) -> AbstractAsyncContextManager[Rules]:
        """Return the policies to decide by; see ``PlacementPolicies.deciding``."""
        return self._policies.deciding(name.namespace_text for name in names)

    def room(self) -> Room:
        """Return the present candidates. The caller uses them without an await."""
        return Room(self._placer.begin())


def _unread(name: TopicName, error: MetadataError) -> Rejected:
    why = f"the placement rules of {name.namespace_text} cannot be read: {error}"
    return Rejected(RejectionCode.NO_BROKER, why)
