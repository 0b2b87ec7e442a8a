"""The schedule of faults: made from a seed, stored, replayed.

A schedule names roles, not nodes ("the leader of the second shard"). The node is chosen when the
fault begins. Each group of processes has a lane, and a lane has one fault at a time, with time to
recover after it. So a group never has more than one broken process, which is a minority of three.
The restart of all processes is the one exception, and has no other fault beside it. Changes of
ownership have a lane too: topics are moved and unloaded and brokers drained, whatever else is
broken at that moment. So have plans that move slots between shards.

Time is divided into blocks of a minute. A block begins without faults, then each kind of fault
happens once, then more kills if there is room, and it ends without faults.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.input.json_fields import parse_json

SCHEDULE_FORMAT = 1
STEPS_MAX = 100_000
"""Faults of one schedule at most: a week of chaos. A file with more was not made by chaos."""

BLOCK_MS = 60_000
RESTART_EVERY_BLOCKS = 3
"""All processes are restarted in the first of three blocks, so that every run has it once."""

QUIET_MS = 3_000
"""At the beginning of each block nothing is broken."""

LANES_END_MS = 53_000
LANES_END_BEFORE_RESTART_MS = 43_000
"""Time in a block by which the last fault of a lane must have ended, recovery included."""

RESTART_AT_MS = 44_000
RESTART_DOWN_MS = (200, 1_000)
RECOVER_MS = 4_000
"""Pause between two faults of a lane: a process starts, catches up, serves."""


class FaultKind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    PAUSE = "pause"
    PARTITION = "partition"
    DISK_FULL = "full_disk"
    DISK_SLOW = "slow_disk"
    CLOCK = "clock"
    RESTART_ALL = "restart_all"
    TRANSFER = "transfer"
    MOVE = "move"
    UNLOAD = "unload"
    DRAIN = "drain"
    RESHARD = "reshard"


class Group(StrEnum):
    """Groups of processes, of which a minority may be broken at a time; and the served units."""

    SHARD_NODE = "shard-node"
    MANAGER = "cluster-manager"
    BROKER = "broker"
    DISCOVERY = "discovery"
    UNITS = "units"
    SLOTS = "slots"
    ALL = "all"


class Role(StrEnum):
    """The node of a group that is meant. ``FaultStep.pick`` chooses for ``ANY``."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ANY = "any"


class Cut(StrEnum):
    """Shapes of a partition, from the view of its node."""

    ISOLATED = "isolated"
    DEAF = "deaf"
    MUTE = "mute"
    PAIR = "pair"


QUORUM_GROUPS = frozenset({Group.SHARD_NODE, Group.MANAGER, Group.BROKER})
"""Groups of which more than half must be well. Of other groups, one process suffices."""

OF_CLUSTER = (
    FaultKind.KILL,
    FaultKind.PAUSE,
    FaultKind.PARTITION,
    FaultKind.DISK_FULL,
    FaultKind.DISK_SLOW,
    FaultKind.CLOCK,
    FaultKind.RESTART_ALL,
)
"""Kinds for a cluster whose processes run on this machine."""

OF_UNITS = (FaultKind.MOVE, FaultKind.UNLOAD, FaultKind.DRAIN)
"""Kinds that change the owners of units although nothing is broken."""

THROUGH_THE_API = (FaultKind.TRANSFER, *OF_UNITS, FaultKind.RESHARD)
"""Kinds that are made by requests to the cluster."""

DURATIONS_MS: Mapping[FaultKind, tuple[int, int]] = {
    FaultKind.KILL: (300, 2_000),
    FaultKind.PAUSE: (1_000, 5_000),
    FaultKind.PARTITION: (2_000, 5_000),
    FaultKind.DISK_FULL: (2_500, 4_500),
    FaultKind.DISK_SLOW: (2_500, 4_500),
    FaultKind.CLOCK: (2_000, 5_000),
    FaultKind.TRANSFER: (0, 0),
    FaultKind.MOVE: (0, 0),
    FaultKind.UNLOAD: (0, 0),
    FaultKind.DRAIN: (2_000, 8_000),
    FaultKind.RESHARD: (0, 0),
}
"""Shortest and longest duration. Pauses and partitions may be shorter or longer than an election
and a broker's session, so that both cases happen. Some drains are undone before the broker is
empty."""

GAPS_MS: Mapping[Group, tuple[int, int]] = {
    Group.SHARD_NODE: (200, 2_500),
    Group.MANAGER: (4_000, 14_000),
    Group.BROKER: (3_000, 12_000),
    Group.DISCOVERY: (5_000, 18_000),
    Group.UNITS: (1_000, 6_000),
    Group.SLOTS: (1_000, 4_000),
}
"""Shortest and longest pause before each fault of a lane: the lane of shards has most faults."""

DEALT: Sequence[tuple[FaultKind, tuple[Group, ...]]] = (
    (FaultKind.KILL, (Group.SHARD_NODE,)),
    (FaultKind.KILL, (Group.BROKER,)),
    (FaultKind.PAUSE, (Group.SHARD_NODE,)),
    (FaultKind.PAUSE, (Group.BROKER,)),
    (FaultKind.PARTITION, (Group.SHARD_NODE, Group.SHARD_NODE, Group.BROKER, Group.MANAGER)),
    (FaultKind.DISK_FULL, (Group.SHARD_NODE, Group.SHARD_NODE, Group.MANAGER)),
    (FaultKind.DISK_SLOW, (Group.SHARD_NODE, Group.SHARD_NODE, Group.BROKER)),
    (FaultKind.CLOCK, (Group.SHARD_NODE, Group.SHARD_NODE, Group.BROKER)),
    (FaultKind.TRANSFER, (Group.SHARD_NODE,)),
    (FaultKind.MOVE, (Group.UNITS,)),
    (FaultKind.UNLOAD, (Group.UNITS,)),
    (FaultKind.DRAIN, (Group.UNITS,)),
    (FaultKind.RESHARD, (Group.SLOTS,)),
)
"""Faults of each block, and their lanes; a lane that is named more often is chosen more often. The
target is the leader, if the group has one."""

FILL: Mapping[Group, tuple[FaultKind, ...]] = {
    Group.SHARD_NODE: (
        *(FaultKind.KILL,) * 6,
        FaultKind.PAUSE,
        FaultKind.PARTITION,
        FaultKind.TRANSFER,
    ),
    Group.MANAGER: (*(FaultKind.KILL,) * 3, FaultKind.PARTITION),
    Group.BROKER: (*(FaultKind.KILL,) * 3, FaultKind.PAUSE),
    Group.DISCOVERY: (*(FaultKind.KILL,) * 3, FaultKind.PAUSE, FaultKind.PARTITION),
    Group.UNITS: (*(FaultKind.MOVE,) * 3, FaultKind.UNLOAD, FaultKind.DRAIN),
    Group.SLOTS: (FaultKind.RESHARD,),
}
"""Additional faults of a lane, with frequencies as listed here."""

_ANYWHERE: Mapping[FaultKind, Collection[Group]] = {}

DISK_DELAYS_MS = (50, 200, 1_000)
DRAIN_UNITS_PER_SECOND = (5, 100, 1_000)
"""Units per second of a drain, for a cluster whose load has some hundred units."""

CLOCK_LEAPS_MS = (-3_600_000, 3_600_000)
LEFT_FREE_BYTES = (0, 16_384)
"""Free bytes that filling a disk leaves: none, or enough for small records but not for large."""


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One fault. It starts ``at_ms`` after the beginning of the schedule, or later if its lane is
    busy. ``pick`` chooses among several possible targets."""

    at_ms: int
    for_ms: int
    kind: FaultKind
    group: Group
    role: Role = Role.ANY
    pick: int = 0
    detail: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All faults of a run, by time."""

    seed: int
    minutes: float
    steps: tuple[FaultStep, ...]

    def to_json(self) -> str:
        document = {"format": SCHEDULE_FORMAT, **asdict(self)}
        return json.dumps(document, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Parse the result of ``to_json``.

        Raises:
            RefusesToStart: The text is not a schedule.
        """
        try:
            document = parse_json(text)
            if document["format"] != SCHEDULE_FORMAT:
                raise RefusesToStart(f"a schedule of format {document['format']} is not known here")
            steps = tuple(_step_from(one) for one in document["steps"])
            schedule = Schedule(int(document["seed"]), float(document["minutes"]), steps)
        except (ValueError, KeyError, TypeError) as error:
            raise RefusesToStart(f"this is not a schedule of nextgen chaos: {error}") from error
        if len(steps) > STEPS_MAX:
            raise RefusesToStart(f"a schedule has at most {STEPS_MAX} faults, not {len(steps)}")
        return schedule

    @staticmethod
    def load(path: Path) -> Schedule:
        """Return the schedule in a file.

        Raises:
            RefusesToStart: The file has no schedule.
        """
        try:
            return Schedule.from_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RefusesToStart(f"{path} cannot be read: {error}") from error

    def lane(self, group: Group) -> tuple[FaultStep, ...]:
        """Return the faults of one group, in order."""
        return tuple(step for step in self.steps if step.group == group)


def minority_of(group: Group, size: int) -> int:
    """Return how many of a group of this size may be broken while the rest keeps working."""
    if group in QUORUM_GROUPS:
        return (size - 1) // 2
    return max(0, size - 1)


def make_schedule(
    seed: int,
    minutes: float,
    kinds: Iterable[FaultKind],
    sizes: Mapping[Group, int],
    places: Mapping[FaultKind, Collection[Group]] = _ANYWHERE,
) -> Schedule:
    """Return the schedule of a seed. The same arguments give the same schedule, for ever.

    ``places`` has the groups of kinds that are not possible for all groups.

    Groups without a minority have no faults, and kinds that are not in ``kinds`` do not happen.
    Leaving a kind out may also change the others, because the random numbers shift.
    """
    allowed = tuple(kind for kind in FaultKind if kind in set(kinds))
    chooser = random.Random(f"chaos {seed}")
    lanes = [group for group in GAPS_MS if minority_of(group, sizes.get(group, 0)) > 0]
    steps: list[FaultStep] = []
    end_ms = round(minutes * 60_000)
    for block, start_ms in enumerate(range(0, end_ms, BLOCK_MS)):
        length_ms = min(BLOCK_MS, end_ms - start_ms)
        is_restarted = FaultKind.RESTART_ALL in allowed and block % RESTART_EVERY_BLOCKS == 0
        dealer = _Dealer(chooser, allowed, lanes, places)
        steps += _block(dealer, start_ms, length_ms, is_restarted)
    return Schedule(seed, minutes, tuple(sorted(steps, key=lambda step: step.at_ms)))


def kinds_of_brokers(
    kinds: Iterable[FaultKind],
    sizes: Mapping[Group, int],
    places: Mapping[FaultKind, Collection[Group]] = _ANYWHERE,
) -> list[FaultKind]:
    """Return the kinds among ``kinds`` that every block has for a broker, in such a cluster."""
    if not minority_of(Group.BROKER, sizes.get(Group.BROKER, 0)):
        return []
    certain = [kind for kind, homes in DEALT if set(homes) == {Group.BROKER}]
    allowed = set(kinds)
    return [k for k in certain if k in allowed and Group.BROKER in places.get(k, Group)]


@dataclass(frozen=True, slots=True)
class _Dealer:
    """Distributes kinds of faults over groups."""

    chooser: random.Random
    allowed: Sequence[FaultKind]
    lanes: Sequence[Group]
    places: Mapping[FaultKind, Collection[Group]]

    def decks(self) -> dict[Group, list[FaultKind]]:
        """Return the faults of a block by ``DEALT``, shuffled."""
        decks: dict[Group, list[FaultKind]] = {group: [] for group in self.lanes}
        dealt: set[FaultKind] = set()
        for kind, wanted in DEALT:
            if kind not in self.allowed:
                continue
            homes = [group for group in wanted if self._fits(kind, group)]
            if not homes and kind not in dealt:
                homes = [group for group in self.lanes if self._fits(kind, group)]
            if homes:
                # Choose the lane with the least faults so far, so that all of them find room.
                self.chooser.shuffle(homes)
                decks[min(homes, key=lambda group: len(decks[group]))].append(kind)
                dealt.add(kind)
        for deck in decks.values():
            self.chooser.shuffle(deck)
        return decks

    def fill(self, group: Group) -> list[FaultKind]:
        """Return an additional fault of a group."""
        fitting = [kind for kind in FILL[group] if self._fits(kind, group)]
        return [kind for kind in fitting if kind in self.allowed]

    def _fits(self, kind: FaultKind, group: Group) -> bool:
        if (kind in OF_UNITS) != (group is Group.UNITS):
            return False
        if (kind is FaultKind.RESHARD) != (group is Group.SLOTS):
            return False
        return group in self.lanes and group in self.places.get(kind, self.lanes)


def _block(dealer: _Dealer, start_ms: int, length_ms: int, is_restarted: bool) -> list[FaultStep]:
    chooser = dealer.chooser
    scale = length_ms / BLOCK_MS
    ends = LANES_END_BEFORE_RESTART_MS if is_restarted else LANES_END_MS
    steps: list[FaultStep] = []
    for group, deck in dealer.decks().items():
        fill = dealer.fill(group)
        until_ms = start_ms + round(ends * scale)
        steps += _lane(chooser, group, deck, fill, start_ms + QUIET_MS, until_ms)
    if is_restarted:
        at_ms = start_ms + round(RESTART_AT_MS * scale)
        down_ms = chooser.randint(*RESTART_DOWN_MS)
        steps.append(FaultStep(at_ms, down_ms, FaultKind.RESTART_ALL, Group.ALL))
    return steps


def _lane(
    chooser: random.Random,
    group: Group,
    deck: Sequence[FaultKind],
    fill: Sequence[FaultKind],
    from_ms: int,
    until_ms: int,
) -> list[FaultStep]:
    """Return the faults of one lane in one block: the deck, then more as there is room."""
    steps: list[FaultStep] = []
    pending = list(deck)
    at_ms = from_ms
    while pending or fill:
        is_dealt = bool(pending)
        kind = pending.pop(0) if is_dealt else chooser.choice(fill)
        shortest, longest = DURATIONS_MS[kind]
        # Required faults follow quickly; additional ones have longer pauses.
        gap_ms = GAPS_MS[group][0] if is_dealt else chooser.randint(*GAPS_MS[group])
        for_ms = chooser.randint(shortest, longest)
        role = chooser.choice((Role.LEADER, Role.LEADER, Role.LEADER, Role.FOLLOWER))
        pick = chooser.randrange(1_000)
        detail = _detail(chooser, kind, group)
        at_ms += gap_ms
        if at_ms + for_ms + RECOVER_MS > until_ms:
            return steps
        has_leader = group in (Group.SHARD_NODE, Group.MANAGER)
        if is_dealt:
            role = Role.LEADER
        steps.append(
            FaultStep(at_ms, for_ms, kind, group, role if has_leader else Role.ANY, pick, detail)
        )
        at_ms += for_ms + RECOVER_MS
    return steps


def _detail(chooser: random.Random, kind: FaultKind, group: Group) -> dict[str, int | str]:
    if kind is FaultKind.PARTITION:
        # A broker or discovery node may never connect to a single other node.
        has_peers = group in (Group.SHARD_NODE, Group.MANAGER)
        cuts = [cut for cut in Cut if has_peers or cut is not Cut.PAIR]
        return {"cut": str(chooser.choice(cuts))}
    if kind is FaultKind.DISK_SLOW:
        return {"delay_ms": chooser.choice(DISK_DELAYS_MS)}
    if kind is FaultKind.CLOCK:
        return {"offset_ms": chooser.choice(CLOCK_LEAPS_MS)}
    if kind is FaultKind.DISK_FULL:
        return {"leave_bytes": chooser.choice(LEFT_FREE_BYTES)}
    if kind is FaultKind.DRAIN:
        return {"units_per_second": chooser.choice(DRAIN_UNITS_PER_SECOND)}
    return {}


def _step_from(document: Mapping[str, object]) -> FaultStep:
    given = dict(document)
    detail = given["detail"]
    if not isinstance(detail, Mapping):
        raise TypeError(f"{detail!r} is no detail of a fault")
    return FaultStep(
        at_ms=_number(given["at_ms"]),
        for_ms=_number(given["for_ms"]),
        kind=FaultKind(str(given["kind"])),
        group=Group(str(given["group"])),
        role=Role(str(given["role"])),
        pick=_number(given["pick"]),
        detail=dict(detail),
    )


def _number(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number of milliseconds")
    return value
