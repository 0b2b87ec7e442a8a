"""Where the history of a slot is: in the logs of which shards, from which position to which.

    SlotsAdopted events  ──▶  moves  ──▶  legs: shard 2 up to 80, shard 5 from 12 to 300, shard 2 …

A slot that never moved has no legs: all of its history is in one log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class SlotMove:
    """Slots that came to ``to_shard`` by its event ``to_position``: what was decided about them
    before is in the log of ``from_shard``, up to ``from_position``."""

    move_id: int
    ranges: tuple[tuple[int, int], ...]
    from_shard: int
    from_position: int
    to_shard: int
    to_position: int


@dataclass(frozen=True, slots=True)
class Leg:
    """The slots ``first`` to ``last`` are in the log of ``shard`` from ``first_position`` to
    ``last_position``, which is None of the last leg. ``number`` counts from 1."""

    first: int
    last: int
    number: int
    shard: int
    first_position: int
    last_position: int | None


@dataclass(frozen=True, slots=True)
class HomeLeg:
    """A leg, up to ``up_to``, of the slots that ``home`` has at the positions asked for."""

    leg: Leg
    home: int
    up_to: int


@dataclass(frozen=True, slots=True)
class SlotLegs:
    """Legs of all slots that ever moved, by slots and number. ``broken`` are moves that do not go
    on where the last one ended: they are left out."""

    legs: tuple[Leg, ...] = ()
    broken: tuple[SlotMove, ...] = ()

    @property
    def slots(self) -> frozenset[int]:
        """The slots that ever moved."""
        return frozenset(slot for leg in self.legs for slot in range(leg.first, leg.last + 1))

    def leg_at(self, slot: int, shard: int, position: int) -> Leg | None:
        """Return the leg of ``slot`` that has this place in a log, None if none has."""
        for leg in self.legs:
            if leg.first <= slot <= leg.last and leg.shard == shard and _has(leg, position):
                return leg
        return None


def legs_of(moves: Iterable[SlotMove]) -> SlotLegs:
    """Return the legs that ``moves`` make. The ids of a slot's moves ascend in time."""
    ordered = sorted(moves, key=lambda move: move.move_id)
    edges = sorted(
        {edge for move in ordered for first, last in move.ranges for edge in (first, last + 1)}
    )
    legs: list[Leg] = []
    broken: dict[int, SlotMove] = {}
    for first, end in pairwise(edges):
        of_slots = [move for move in ordered if _moves(move, first)]
        chain: list[Leg] = []
        for move in of_slots:
            if not chain:
                chain.append(Leg(first, end - 1, 1, move.from_shard, 0, None))
            before = chain[-1]
            if before.shard != move.from_shard or move.from_position < before.first_position:
                broken[move.move_id] = move
                continue
            chain[-1] = replace(before, last_position=move.from_position)
            chain.append(
                Leg(first, end - 1, before.number + 1, move.to_shard, move.to_position, None)
            )
        legs += chain
    return SlotLegs(tuple(legs), tuple(broken.values()))


def homes_at(legs: Sequence[Leg], positions: Mapping[int, int]) -> list[HomeLeg]:
    """Return, for the slots that each shard has at its position, the legs of their history.

    A history is whole: the legs before the shard's own count to their ends, also where they are
    behind the position of their shard. Slots that are on their way, released by one shard and
    adopted by none, count to the one that released them.
    """
    by_slots: dict[int, list[Leg]] = {}
    for leg in legs:
        by_slots.setdefault(leg.first, []).append(leg)
    found: list[HomeLeg] = []
    for chain in by_slots.values():
        homes: dict[int, Leg] = {}
        for leg in chain:
            reached = positions.get(leg.shard)
            if reached is None or leg.first_position > reached:
                continue
            if leg.last_position is not None and leg.last_position <= reached:
                homes.pop(leg.shard, None)
            else:
                homes[leg.shard] = leg
        if not homes:
            begun = [leg for leg in chain if leg.first_position <= positions.get(leg.shard, -1)]
            homes = {leg.shard: leg for leg in begun[-1:]}
        for home, own in homes.items():
            found += [
                HomeLeg(leg, home, _end(leg, own, positions[home]))
                for leg in chain
                if leg.number <= own.number
            ]
    return found


def _end(leg: Leg, own: Leg, reached: int) -> int:
    if leg is not own:
        assert leg.last_position is not None, "only the last leg has no end"
        return leg.last_position
    return reached if leg.last_position is None else min(reached, leg.last_position)


def _has(leg: Leg, position: int) -> bool:
    return leg.first_position <= position and (
        leg.last_position is None or position <= leg.last_position
    )


def _moves(move: SlotMove, slot: int) -> bool:
    return any(first <= slot <= last for first, last in move.ranges)
