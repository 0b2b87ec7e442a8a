"""Replicas compare their views: one that differs from a majority of the voters stops.

    view ──digest point──▶ own ──▶ append_answer (field ``digest``) ──▶ the leader's comparison
                                                                             │
           one differs from what a majority of the voters has ◀──────────────┤
           it stops: by a ``view_diverged`` message, or the leader by itself  │
           two differ and no majority has either: an alarm, none stops ◀─────┘

A follower sends its newest digest with every answer, so a comparison that was lost is made
again. An earlier version neither sends digests nor reads them, and gets no such message.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from nextgen.kernel.errors import Definite
from nextgen.kernel.limits.cluster import DIGESTS_KEPT
from nextgen.replication.election.overrides import HardenedSyncObj
from nextgen.replication.mesh.frames import Message
from nextgen.replication.ports import Configuration, GroupId, NodeId, ViewDigest
from nextgen.replication.protocol.quorum import majority_of
from nextgen.replication.raft.leadership import Leadership

_logger = logging.getLogger(__name__)


class ViewDiverged(Definite):
    """A view is not what its log says: it must be rebuilt before it is served again."""

    reason = "VIEW_DIVERGED"


class ComparedReplica(Protocol):
    """The part of a replica that the comparison needs."""

    group_id: GroupId
    node_id: NodeId
    core: HardenedSyncObj
    leadership: Leadership | None
    stopped: bool

    @property
    def configuration(self) -> Configuration: ...
    def send(self, node_id: NodeId, message: Message) -> bool: ...


class DigestHistory:
    """The newest digests of one replica, by position."""

    def __init__(self) -> None:
        self._points: OrderedDict[int, ViewDigest] = OrderedDict()

    def add(self, point: ViewDigest) -> bool:
        """Remember ``point``; return whether it is new."""
        if self._points.get(point.position) == point:
            return False
        self._points[point.position] = point
        self._points.move_to_end(point.position)
        if len(self._points) > DIGESTS_KEPT:
            self._points.popitem(last=False)
        return True

    def at(self, position: int) -> ViewDigest | None:
        return self._points.get(position)


class DigestComparison:
    """One replica's part in the comparison. ``on_diverged`` is called once, when this view is the
    one that differs: it MUST stop the replica before it returns."""

    def __init__(
        self,
        replica: ComparedReplica,
        newest: Callable[[], ViewDigest | None],
        on_diverged: Callable[[ViewDiverged], None],
    ) -> None:
        self._replica = replica
        self._newest = newest
        self._on_diverged = on_diverged
        self._own = DigestHistory()
        self._term = 0
        self._heard: dict[NodeId, DigestHistory] = {}
        self._differing: dict[NodeId, str] = {}
        self._field: list[int] | None = None
        self.diverged = ""
        """Why this replica has stopped itself, a sentence; "" while it has not."""

    @property
    def alarm(self) -> str:
        """The divergence that this replica knows of, as a sentence; "" for none."""
        if self.diverged or self._replica.leadership is None:
            return self.diverged
        return "; ".join(why for _, why in sorted(self._differing.items()))

    @property
    def answer_field(self) -> list[int] | None:
        """The newest digest in the form of ``append_answer``."""
        return self._field

    def applied(self) -> None:
        """Note the point that the view has reached."""
        point = self._newest()
        if point is None or not self._own.add(point):
            return
        self._field = [point.scheme, point.index, point.position, point.digest]
        if self._replica.leadership is not None:
            self._compare(point.position)

    def begin_again(self) -> None:
        """Forget this replica's own digests, because its view was replaced."""
        self._own = DigestHistory()
        self._field = None
        self.applied()

    # Leading ----------------------------------------------------------------------------------

    def heard(self, sender: NodeId, field: list[int] | None) -> None:
        """Handle the newest digest in a follower's answer."""
        if field is None or self._replica.leadership is None:
            return
        self._follow_term()
        scheme, index, position, digest = field
        history = self._heard.setdefault(sender, DigestHistory())
        is_news = history.add(ViewDigest(index, position, digest, scheme))
        # The message may have been lost: it is sent again after each answer.
        if is_news or sender in self._differing:
            self._compare(position)

    def _follow_term(self) -> None:
        if self._term != self._replica.core.term:
            self._term = self._replica.core.term
            self._heard.clear()
            self._differing.clear()

    def _compare(self, position: int) -> None:
        """Compare the members' digests at ``position``, if this replica's own is known."""
        self._follow_term()
        own = self._own.at(position)
        if own is None or self._replica.stopped:
            return
        configuration = self._replica.configuration
        members = {*configuration.voters, *configuration.learners}
        self._differing = {n: why for n, why in self._differing.items() if n in members}
        known = {
            node_id: point
            for node_id, history in self._heard.items()
            if node_id in members
            and (point := history.at(position)) is not None
            and point.scheme == own.scheme
        } | {self._replica.node_id: own}
        counts = Counter(known[voter] for voter in configuration.voters if voter in known)
        right, votes = counts.most_common(1)[0] if counts else (own, 0)
        if votes >= majority_of(len(configuration.voters)):
            self._tell(right, known)
        elif len(set(known.values())) > 1:
            self._alarm_without_majority(known)

    def _tell(self, right: ViewDigest, known: dict[NodeId, ViewDigest]) -> None:
        """Stop the replicas whose view differs from the majority's."""
        for node_id, point in known.items():
            if point == right:
                self._differing.pop(node_id, None)
            elif node_id != self._replica.node_id:
                self._note(node_id, f"the view of {node_id} differs at event {right.position}")
                self._replica.send(node_id, self._order(right))
        if known[self._replica.node_id] != right:
            successors = [node_id for node_id, point in known.items() if point == right]
            self._stop(known[self._replica.node_id], right, successors)

    def _alarm_without_majority(self, known: dict[NodeId, ViewDigest]) -> None:
        own = known[self._replica.node_id]
        for node_id, point in known.items():
            if point != own:
                self._note(
                    node_id,
                    f"the views of {self._replica.node_id} and {node_id} differ at event "
                    f"{own.position} and no majority has either: run 'nextgen shards verify'",
                )

    def _note(self, node_id: NodeId, why: str) -> None:
        if self._differing.get(node_id) != why:
            _logger.critical("group %s: %s", self._replica.group_id, why)
            self._differing[node_id] = why

    def _order(self, right: ViewDigest) -> Message:
        return {
            "type": "view_diverged",
            "term": self._replica.core.term,
            "scheme": right.scheme,
            "index": right.index,
            "position": right.position,
            "digest": right.digest,
        }

    # Following --------------------------------------------------------------------------------

    def on_view_diverged(self, sender: NodeId, message: Message) -> None:
        """Stop if the leader requests it and this view really differs at that position."""
        replica = self._replica
        if message["term"] != replica.core.term or sender != replica.core.leader_id:
            return
        own = self._own.at(message["position"])
        right = ViewDigest(
            message["index"], message["position"], message["digest"], message["scheme"]
        )
        if own is not None and own.scheme == right.scheme and own != right:
            self._stop(own, right, [])

    def _stop(self, own: ViewDigest, right: ViewDigest, successors: list[NodeId]) -> None:
        replica = self._replica
        if self.diverged or replica.stopped:
            return
        self.diverged = (
            f"group {replica.group_id}: the view of this replica is not what its log says: at "
            f"event {own.position} its digest is {own.digest:016x} (entry {own.index}), a "
            f"majority has {right.digest:016x} (entry {right.index}); it is not served any "
            f"more: restart this node, which rebuilds it from the others"
        )
        term = replica.core.term
        self._on_diverged(ViewDiverged(self.diverged))
        for successor in successors:
            # The first eligible follower campaigns at once; the others get its pre-vote before
            # their own turn.
            if replica.send(successor, {"type": "timeout_now", "term": term}):
                break
