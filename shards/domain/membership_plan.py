"""The next step from a shard's configuration towards the one that the shard map wants.

    not a member ──AddLearner──▶ learner ──Promote, when it has caught up──▶ voter ──Remove──▶ gone

Each step is decided from the present configuration alone, so the next leader simply continues. No
step may leave fewer than a majority of the voters alive: a configuration is in force from its
append on, and without a majority it could not even be changed back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """The placement of one shard in the shard map; see ``ShardPlacement``."""

    replicas: tuple[str, ...]
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Return the voters of the final configuration, in the order of preference."""
        wanted = (*self.replicas, *self.joining)
        return tuple(node for node in wanted if node not in self.leaving)

    @property
    def is_fulfilled(self) -> bool:
        """Return whether the map has no change under way."""
        return not self.joining and not self.leaving


@dataclass(frozen=True, slots=True)
class Progress:
    """Another member's progress, as the leader knows it."""

    is_connected: bool
    match_index: int
    gets_snapshot: bool


@dataclass(frozen=True, slots=True)
class Situation:
    """A shard's configuration on its leader ``own_id``."""

    own_id: str
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    progress: Mapping[str, Progress]
    """By node id, of the other members."""
    configuration_index: int = 0

    def is_alive(self, node_id: str) -> bool:
        """Return whether the leader hears from a member, itself included."""
        known = self.progress.get(node_id)
        return node_id == self.own_id or (known is not None and known.is_connected)

    def follows(self, node_id: str) -> bool:
        """Return whether a learner has acknowledged the entry that made it one.

        A connected process may not have opened its replica, or may be unable to.
        """
        known = self.progress[node_id]
        return not known.gets_snapshot and known.match_index >= self.configuration_index


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Add the node as a learner: it replicates and has no vote."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make the learner a voter; the log refuses if it has not caught up."""

    node_id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a voter or learner."""

    node_id: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """The leader itself is to be removed: it transfers leadership first."""

    target: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The next step has to wait for the condition in ``why``."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """The configuration is the one that the map wants."""


Step = AddLearner | Promote | Remove | HandOver | Wait | Done


def next_step(wish: Wish, now: Situation) -> Step:
    """Return the next step. New members are added before unwanted ones are removed."""
    wanted = wish.members
    for learner in now.learners:
        if learner not in wanted:
            return Remove(learner)
    missing = [node for node in wanted if node not in now.voters]
    under_way = [node for node in missing if node in now.learners and now.is_alive(node)]
    for node in under_way:
        if now.follows(node) and _stands(now, (*now.voters, node)):
            return Promote(node)
    if under_way:
        # One at a time: each may need a whole snapshot.
        return Wait(f"{under_way[0]} catches up")
    for node in missing:
        if node not in now.learners:
            return AddLearner(node)
    unwanted = [node for node in now.voters if node not in wanted]
    if unwanted:
        return _remove_one(unwanted, wanted, now)
    if missing:
        return Wait(f"{missing[0]} is not there")
    return Done()


def _remove_one(unwanted: list[str], wanted: tuple[str, ...], now: Situation) -> Step:
    """Return the step that removes one of the unwanted voters, the leader itself last."""
    others = [node for node in unwanted if node != now.own_id]
    for node in sorted(others, key=now.is_alive):  # Dead voters first: removing them costs nothing.
        if _stands(now, tuple(voter for voter in now.voters if voter != node)):
            return Remove(node)
    if others:
        return Wait(f"without {others[0]} too few voters would be alive")
    successors = [node for node in now.voters if node in wanted and now.is_alive(node)]
    if not successors:
        return Wait("no other voter can lead in place of this node")
    return HandOver(max(successors, key=lambda node: now.progress[node].match_index))


def _stands(now: Situation, voters: tuple[str, ...]) -> bool:
    """Return whether a majority of ``voters`` is alive."""
    alive = sum(now.is_alive(node) for node in voters)
    return 2 * alive > len(voters)
