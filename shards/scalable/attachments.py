"""Which nodes serve the connections of which consumers: soft state of one term, without I/O.

    attached ──┬─ detached ────────────────────────╮
               ╰─ its node renewed nothing lately ─┴─▶ in grace ──┬─ attached again
                                                                  ╰─ due: it is to be removed

Each attachment has a number that grows over terms. The latest of a consumer holds: a client that
comes back by another node takes its consumer along, and what the former node says later changes
nothing. A new leader knows no attachment; nodes attach what they have with the numbers of before.

Shards number for themselves. Of consumers whose topic came from another shard the one holds that
has the highest number of there, unless its client came back since.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nextgen.kernel.errors import Overloaded

_TERM_SHIFT = 32
"""Attachments of one term, as bits: the number of an earlier term's is always lower."""


class Member(NamedTuple):
    """A consumer of a group."""

    topic: str
    subscription: str
    consumer: str


class NodeId(NamedTuple):
    """A process that serves connections. ``incarnation`` differs when it is started again."""

    node_id: str
    incarnation: str


Claim = tuple[Member, int]
"""A consumer, and the number of its attachment; 0 of a client that has just come."""


@dataclass(slots=True, eq=False)
class _Node:
    node: NodeId
    renewed_at: float
    members: dict[Member, int] = field(default_factory=dict)
    ended: dict[int, Member] = field(default_factory=dict)
    """Attachments that later ones replaced, until the node detaches them."""
    is_known: bool = False
    """False until an answer has had the node attach all its consumers anew."""


@dataclass(frozen=True, slots=True)
class Attached:
    """``is_known``: the node had renewed lately, and has nothing to attach anew.

    ``attachments`` are in the order of the claims; 0: a later one holds elsewhere. ``ended`` are
    those that the node does not have any more.
    """

    is_known: bool
    attachments: tuple[int, ...]
    ended: tuple[Claim, ...]


class Attachments:
    """Times are of one clock that never goes back, in seconds."""

    def __init__(self, term: int, *, silence_s: float, grace_s: float, members_max: int) -> None:
        self._next_number = (term << _TERM_SHIFT) + 1
        self._silence_s = silence_s
        self._grace_s = grace_s
        self._members_max = members_max
        self._nodes: OrderedDict[str, _Node] = OrderedDict()
        """By node id, the one that has been silent longest first."""
        self._lost: deque[_Node] = deque()
        """Nodes that are gone, whose members are still to be put into grace."""
        self._holders: dict[Member, _Node] = {}
        self._moved: dict[Member, int] = {}
        """Of attached consumers whose topic came from another shard: their numbers there."""
        self._grace: dict[Member, float] = {}
        """When it ends. As long for all, so the first one ends first."""

    def __len__(self) -> int:
        """The number of attached consumers."""
        return len(self._holders)

    @property
    def in_grace(self) -> int:
        return len(self._grace)

    @property
    def next_at(self) -> float | None:
        """When ``sweep`` or ``take_due`` has something to do; None if nothing is known."""
        times = [node.renewed_at + self._silence_s for node in [*self._nodes.values()][:1]]
        times += [next(iter(self._grace.values()))] if self._grace else []
        times += [self._lost[0].renewed_at] if self._lost else []
        return min(times, default=None)

    def is_claimed(self, member: Member) -> bool:
        """Return whether a consumer is attached or in grace."""
        return member in self._holders or member in self._grace

    def attach(
        self,
        node_id: NodeId,
        claims: Sequence[Claim],
        now: float,
        moved: Mapping[Member, int] | None = None,
    ) -> Attached:
        """Renew a node, and attach consumers to it. ``moved``: the numbers that consumers had in
        the shard from which their topics came.

        Raises:
            Overloaded: Too many consumers would be attached. Nothing changed.
        """
        new = sum(member not in self._holders for member, _ in claims)
        if len(self._holders) + new > self._members_max:
            raise Overloaded(
                f"{len(self._holders)} consumers are attached, at most {self._members_max} may be"
            )
        known = self._nodes.get(node_id.node_id)
        is_here = known is not None and known.node == node_id
        node = known if known is not None and is_here else self._add(node_id, now)
        is_known, node.is_known = node.is_known, True
        node.renewed_at = now
        self._nodes.move_to_end(node_id.node_id)
        former = moved or {}
        numbers = tuple(
            [self._attach(node, member, number, former.get(member, 0)) for member, number in claims]
        )
        ended = tuple([(member, number) for number, member in node.ended.items()])
        return Attached(is_known, numbers, ended)

    def detach(
        self, node_id: NodeId, claims: Iterable[Claim], now: float, *, has_grace: bool = True
    ) -> None:
        """End attachments, as far as they hold. Without ``has_grace`` nothing follows."""
        node = self._nodes.get(node_id.node_id)
        if node is None or node.node != node_id:
            return
        for member, number in claims:
            node.ended.pop(number, None)
            if node.members.get(member) == number:
                self._release(node, member, now, has_grace=has_grace)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the consumers of topics that were in another shard for a while: what became of
        their connections was not heard here. Nodes that have some attach all anew."""
        here = {topic: is_gone(topic) for topic in {member.topic for member in self._known()}}
        for member in [each for each in self._holders if here[each.topic]]:
            node = self._holders.pop(member)
            del node.members[member]
            node.is_known = False
            self._moved.pop(member, None)
        for node in self._nodes.values():
            for number in [each for each, member in node.ended.items() if here[member.topic]]:
                del node.ended[number]
        for member in [each for each in self._grace if here[each.topic]]:
            del self._grace[member]

    def _known(self) -> Iterator[Member]:
        yield from self._holders
        yield from self._grace
        for node in self._nodes.values():
            yield from node.ended.values()

    def sweep(self, now: float, members_max: int) -> bool:
        """Put consumers of silent nodes into grace, at most ``members_max``; return whether there
        are more."""
        while self._nodes:
            node = next(iter(self._nodes.values()))
            if node.renewed_at + self._silence_s > now:
                break
            self._lose(node)
        left = members_max
        while self._lost and left:
            node = self._lost[0]
            for member in list(node.members)[:left]:
                self._release(node, member, now)
                left -= 1
            if not node.members:
                self._lost.popleft()
        return bool(self._lost)

    def take_due(self, now: float, members_max: int) -> list[Member]:
        """Return consumers whose grace has ended, at most ``members_max``, and forget them."""
        due: list[Member] = []
        for member, ends_at in self._grace.items():
            if ends_at > now or len(due) == members_max:
                break
            due.append(member)
        for member in due:
            del self._grace[member]
        return due

    def _add(self, node_id: NodeId, now: float) -> _Node:
        before = self._nodes.get(node_id.node_id)
        if before is not None:
            self._lose(before)
        node = self._nodes[node_id.node_id] = _Node(node_id, now)
        return node

    def _lose(self, node: _Node) -> None:
        del self._nodes[node.node.node_id]
        if node.members:
            self._lost.append(node)

    def _attach(self, node: _Node, member: Member, number: int, moved: int) -> int:
        if number in node.ended:
            return 0  # A later one held since, even if it has ended meanwhile.
        holder = self._holders.get(member)
        if holder is not None:
            held = holder.members[member]
            if number and number < held:
                return 0
            if moved and holder is not node and moved < self._moved.get(member, moved + 1):
                return 0
            del holder.members[member]
            if holder is not node:
                holder.ended[held] = member
        if not number:
            number = self._next_number
            self._next_number += 1
        node.members[member] = number
        self._holders[member] = node
        self._grace.pop(member, None)
        if moved:
            self._moved[member] = moved
        else:
            self._moved.pop(member, None)
        return number

    def _release(self, node: _Node, member: Member, now: float, *, has_grace: bool = True) -> None:
        del node.members[member]
        del self._holders[member]
        self._moved.pop(member, None)
        if has_grace:
            self._grace[member] = now + self._grace_s
