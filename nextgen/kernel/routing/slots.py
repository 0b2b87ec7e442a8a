"""The owners of slots, by version.

    key --hash--> slot --table--> shard

The table alone decides, and only the table is sent. The ring only proposes: it gives the first
placement, says which shard a homeless slot prefers when shards come and go, and orders nodes for
replicas. A minimal-move step then evens the proposal out, so that no shard has more than one slot
more than another. Everything here is deterministic: same arguments, same table, everywhere.
"""

from __future__ import annotations

import struct
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress, islice, pairwise
from operator import ne

from uhashring import HashRing

from nextgen.kernel.limits.cluster import RING_POINTS_MAX, SHARDS_MAX, SLOT_COUNT
from nextgen.kernel.routing.hashing import hash64, slot_of

SHARD_ID_MAX = 0xFFFF
"""Shard ids travel in two bytes. 0 is the cluster manager's group and has no slots."""

FIRST_VERSION = 1
"""Version of a cluster's first map until each of its shards has had a leader."""

VNODES_PER_NODE_MAX = 1_000

_PACKED = struct.Struct(f">{SLOT_COUNT}H")
SLOT_TABLE_BYTES = _PACKED.size

DIGESTS = 2**64
"""Digests of sets of slots are below it."""

_ALL_SLOTS = ((0, SLOT_COUNT - 1),)

Ring = tuple[tuple[int, ...], tuple[str, ...]]
"""Points on the ring, ascending, and beside them the node that each belongs to."""


@dataclass(frozen=True, slots=True)
class SlotRun:
    """The slots ``first`` to ``last``, inclusive, and the shard that has them."""

    first: int
    last: int
    shard_id: int


@dataclass(frozen=True, slots=True)
class SlotTable:
    """The owner of each slot, at one version. ``owners[slot]`` is a shard id."""

    version: int
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.version >= 0, f"version {self.version} is negative"
        assert len(self.owners) == SLOT_COUNT, f"{len(self.owners)} slots instead of {SLOT_COUNT}"

    def shard_of(self, slot: int) -> int:
        """Return the shard that has ``slot``, 0 to ``SLOT_COUNT - 1``."""
        assert 0 <= slot < SLOT_COUNT, f"slot {slot} is out of range"
        return self.owners[slot]

    def shard_for_key(self, key: str) -> int:
        """Return the shard that has the slot of a routing key."""
        return self.owners[slot_of(key)]

    @property
    def shard_ids(self) -> tuple[int, ...]:
        """The shards that have a slot, ascending. Others of the cluster may have none."""
        return tuple(sorted(set(self.owners)))

    def slots_of(self, shard_id: int) -> tuple[int, ...]:
        """Return the slots of a shard, ascending; none for a shard that is not in the table."""
        return tuple(compress(range(SLOT_COUNT), map(shard_id.__eq__, self.owners)))

    def ranges_of(self, shard_id: int) -> tuple[tuple[int, int], ...]:
        """Return the slots of a shard as inclusive ranges, ascending and as few as possible."""
        owners = self.owners
        # Without a loop of Python over all slots: each change of the shard map asks for them.
        changes = compress(range(1, SLOT_COUNT), map(ne, owners, islice(owners, 1, None)))
        edges = pairwise((0, *changes, SLOT_COUNT))
        return tuple((first, end - 1) for first, end in edges if owners[first] == shard_id)

    def with_runs(self, version: int, runs: Iterable[SlotRun]) -> SlotTable:
        """Return the table at ``version``, with ``runs`` applied in order.

        Raises:
            ValueError: A run is empty, has slots that do not exist, or no owner.
        """
        owners: list[int] | None = None
        for run in runs:
            if not 0 <= run.first <= run.last < SLOT_COUNT or not 0 < run.shard_id <= SHARD_ID_MAX:
                raise ValueError(f"{run} are no slots of a shard")
            owners = list(self.owners) if owners is None else owners
            owners[run.first : run.last + 1] = [run.shard_id] * (run.last + 1 - run.first)
        # The usual change of a map moves no slot: then both tables share the owners.
        return SlotTable(version, self.owners if owners is None else tuple(owners))

    def runs_to(self, later: SlotTable) -> tuple[SlotRun, ...]:
        """Return the slots that ``later`` gives to another shard, as few runs as possible."""
        changed = compress(range(SLOT_COUNT), map(ne, self.owners, later.owners))
        runs: list[SlotRun] = []
        for slot in changed:
            shard_id = later.owners[slot]
            if runs and runs[-1].last == slot - 1 and runs[-1].shard_id == shard_id:
                runs[-1] = SlotRun(runs[-1].first, slot, shard_id)
            else:
                runs.append(SlotRun(slot, slot, shard_id))
        return tuple(runs)

    def to_bytes(self) -> bytes:
        """Return the owners, two bytes per slot, big-endian. The version travels beside it."""
        return _PACKED.pack(*self.owners)

    @staticmethod
    def from_bytes(version: int, packed: bytes) -> SlotTable:
        """Return the table that ``to_bytes`` packed.

        Raises:
            ValueError: The length is wrong or a slot has no owner.
        """
        if len(packed) != SLOT_TABLE_BYTES:
            raise ValueError(f"slot table has {len(packed)} bytes instead of {SLOT_TABLE_BYTES}")
        owners = _PACKED.unpack(packed)
        if 0 in owners:
            raise ValueError(f"slot {owners.index(0)} has no owner")
        return SlotTable(version, owners)


def slots_digest(ranges: Iterable[tuple[int, int]]) -> int:
    """Return a digest of the slots in ``ranges``, ends included, of 64 bits.

    Digests of sets without a common slot add up, modulo ``DIGESTS``, to that of all their slots.
    """
    sums = _digest_sums()
    return sum(sums[last + 1] - sums[first] for first, last in ranges) % DIGESTS


def have_all_slots(digests: Iterable[int | None]) -> bool:
    """Return whether sets of slots with these digests are all slots, each once.

    None is of a shard that does not tell: then no slot has ever moved.
    """
    known = list(digests)
    return None in known or sum(each or 0 for each in known) % DIGESTS == slots_digest(_ALL_SLOTS)


def initial_table(shard_ids: Iterable[int]) -> SlotTable:
    """Return version 1 of the table: the ring's placement, evened out."""
    return _initial_table(_checked(shard_ids))


def rebalanced(table: SlotTable, shard_ids: Iterable[int]) -> SlotTable:
    """Return the next version for exactly these shards.

    A slot moves only if its shard is gone or has more than its even share, so no table that is
    balanced over ``shard_ids`` is nearer to ``table``.
    """
    return SlotTable(table.version + 1, _evened(table.owners, _checked(shard_ids)))


def preference_order(key: str, node_ids: Sequence[str]) -> list[str]:
    """Return all of ``node_ids``, the ring's best place for ``key`` first.

    The order of ``node_ids`` does not matter. A node that comes or goes leaves the others in
    the order they had.
    """
    nodes = tuple(sorted(set(node_ids)))
    return list(_walk(_ring_points(nodes), hash64(key), len(nodes)))


def _checked(shard_ids: Iterable[int]) -> tuple[int, ...]:
    shards = tuple(sorted(set(shard_ids)))
    assert shards, "a table needs a shard"
    assert len(shards) <= SHARDS_MAX, f"{len(shards)} shards, at most {SHARDS_MAX} are allowed"
    assert shards[0] > 0, f"shard id {shards[0]} is out of range"
    assert shards[-1] <= SHARD_ID_MAX, f"shard id {shards[-1]} is out of range"
    return shards


def _evened(owners: tuple[int, ...], shards: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``owners`` over exactly ``shards``, moving as few slots as evenness allows."""
    ring = _ring_points(tuple(map(_ring_name, shards)))
    points = _slot_points()
    preferred = [_shard_id(_nearest(ring, point)) for point in points]
    evened = list(owners)
    homeless = _homeless(owners, preferred, shards)
    for slot in homeless:
        evened[slot] = 0

    counts = Counter(evened)
    room = {shard: share - counts[shard] for shard, share in _shares(owners, shards).items()}
    for slot in homeless:
        names = _walk(ring, points[slot], len(shards))
        shard = next(shard for shard in map(_shard_id, names) if room[shard] > 0)
        room[shard] -= 1
        evened[slot] = shard
    return tuple(evened)


@lru_cache(maxsize=16)
def _initial_table(shards: tuple[int, ...]) -> SlotTable:
    # A simulation begins with the same shards again and again, and a table takes 30 ms.
    return SlotTable(FIRST_VERSION, _evened((0,) * SLOT_COUNT, shards))


def _shares(owners: tuple[int, ...], shards: tuple[int, ...]) -> dict[int, int]:
    """Return the wanted number of slots of each shard: equal, or one more.

    The shards with the most slots get the one more, so that fewer slots move.
    """
    counts = Counter(owners)
    share, remainder = divmod(SLOT_COUNT, len(shards))
    richest = sorted(shards, key=lambda shard: (-counts[shard], shard))
    return {shard: share + (place < remainder) for place, shard in enumerate(richest)}


def _homeless(owners: tuple[int, ...], preferred: list[int], shards: tuple[int, ...]) -> list[int]:
    """Return the slots that must move: those of no listed shard, and those above a share.

    Of those above a share, a shard first gives up slots that the ring would place elsewhere.
    """
    shares = _shares(owners, shards)
    held: dict[int, list[int]] = {shard: [] for shard in shards}
    homeless: list[int] = []
    for slot, owner in enumerate(owners):
        held.get(owner, homeless).append(slot)
    for shard, slots in held.items():
        slots.sort(key=lambda slot: (preferred[slot] != shard, slot))
        homeless += slots[shares[shard] :]
    return sorted(homeless)


def _ring_name(shard_id: int) -> str:
    return f"shard-{shard_id}"


def _shard_id(ring_name: str) -> int:
    return int(ring_name.removeprefix("shard-"))


@lru_cache(maxsize=1)
def _slot_points() -> tuple[int, ...]:
    return tuple(hash64(f"slot-{slot}") for slot in range(SLOT_COUNT))


@lru_cache(maxsize=16)
def _ring_points(nodes: tuple[str, ...]) -> Ring:
    vnodes = max(1, min(VNODES_PER_NODE_MAX, RING_POINTS_MAX // max(1, len(nodes))))
    points = HashRing(list(nodes), hash_fn=hash64, vnodes=vnodes).get_points()
    return tuple(point for point, _ in points), tuple(node for _, node in points)


def _nearest(ring: Ring, point: int) -> str:
    points, nodes = ring
    return nodes[bisect(points, point) % len(points)]


def _walk(ring: Ring, point: int, count: int) -> Iterator[str]:
    """Yield ``count`` distinct nodes in the order they come on the ring behind ``point``."""
    points, nodes = ring
    start = bisect(points, point)
    seen: set[str] = set()
    for step in range(len(points)):
        if len(seen) == count:
            return
        node = nodes[(start + step) % len(points)]
        if node not in seen:
            seen.add(node)
            yield node


@lru_cache(maxsize=1)
def _digest_sums() -> tuple[int, ...]:
    """Return, for each slot and the end, the sum of the hashes of the slots before it."""
    return (0, *accumulate(hash64(f"slot {slot}") for slot in range(SLOT_COUNT)))
