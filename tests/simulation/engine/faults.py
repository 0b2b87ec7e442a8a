"""What can go wrong, each at one node, or with the network or everybody at once.

A fault takes hold at once. What it leaves behind (a dead process, a cut cable, a full disk)
is put right after a while, drawn when it happens.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.engine.outage import Outage, Struck
from tests.simulation.engine.states import State
from tests.support.simulated.network import SimNetwork
from tests.support.simulated.node import SimNode

CLOCK_LEAP_S_MAX = 30.0
WALL_JUMP_S = 3_600.0
HANG_S = (120.0, 300.0)
"""How long a disk hangs: what a controller that resets, or a volume over a network, takes."""

FAILING_SYNCS = (
    *("journal.batch", "journal.segment_header", "journal.segment_name", "journal.mark") * 2,
    *("journal.drop_segment", "snapshot.received", "view.bytes", "view.name"),
)
"""Labels of syncs that fail. For one of the journal's a replica stops."""

TORN_OPERATIONS_MAX = 6
"""A power cut during writes happens within this number of disk operations."""


class Faulty(Struck, Protocol):
    """What faults do things to."""

    def later(self, seconds: float, work: Callable[[], None]) -> None: ...
    def leap(self, node: SimNode, seconds: float) -> None: ...
    def jump_wall_clock(self, node: SimNode, seconds: float) -> None: ...
    def freeze(self, node: SimNode, seconds: float) -> None: ...
    def may_lose_disk(self, node: SimNode) -> bool: ...
    def lose_disk(self, node: SimNode, *, interruptions: int = 0) -> None: ...
    def rot(self, node: SimNode, length: int) -> None: ...
    def snapshot(self, node: SimNode) -> None: ...
    def transfer(self, node: SimNode) -> None: ...
    def expect_disk_failure(self, node: SimNode) -> None: ...


Injection = Callable[[Faulty, SimNode], bool]
"""Does it to a node; False if it cannot happen there."""

_RUNNING = frozenset(State) - {State.DOWN}
_THERE = _RUNNING - {State.RECOVERING}
_LEADING = frozenset({State.LEADER_BUSY, State.LEADER_IDLE, State.SENDING, State.CHANGING})

_LOSING_STATES = _RUNNING - _LEADING - {State.UNVERIFIED, State.LEARNER}
"""Nodes that can lose a part of their data without the group losing its majority."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind. ``states``: where it can hit; a cell outside is impossible by its nature."""

    name: str
    inject: Injection
    states: frozenset[State]
    weight: int = 2
    of_everybody: bool = False


def _kill(world: Faulty, node: SimNode) -> bool:
    node.kill()
    world.restart_soon(node)
    return True


def _forget_bytes(world: Faulty, node: SimNode) -> bool:
    node.crash(keep_some=False, silently=world.chance.random() < 0.3)
    world.restart_soon(node)
    return True


def _tear_write(world: Faulty, node: SimNode) -> bool:
    """Cut the power between two operations of the disk; some sectors arrive, some do not."""
    process = node.process

    def power_fails() -> None:
        if node.process is process and process is not None:
            node.crash(silently=world.chance.random() < 0.3)
            world.restart_soon(node)

    node.disk.cut_power_after(world.chance.randrange(TORN_OPERATIONS_MAX))
    node.disk.on_power_cut = power_fails
    world.later(0.5, power_fails)  # One whose disk has nothing to do dies all the same.
    return True


def _cut_power_of_all(world: Faulty, _: SimNode) -> bool:
    keep_some = world.chance.random() < 0.5
    running = [node for node in world.nodes if node.process is not None]
    for node in running:
        node.crash(keep_some=keep_some)
    for node in running:
        world.restart_soon(node)
    return bool(running)


def _freeze(world: Faulty, node: SimNode) -> bool:
    world.freeze(node, world.chance.choice((0.2, 1.2, 3.0)))
    return True


def _isolate(world: Faulty, node: SimNode) -> bool:
    others = [other for other in world.nodes if other is not node]
    if not others:
        return False
    many = world.chance.randint(1, len(others))
    pairs = {frozenset((node.node_id, o.node_id)) for o in world.chance.sample(others, many)}
    world.network.cut |= pairs
    world.later(world.chance.uniform(0.2, 5), lambda: world.network.cut.difference_update(pairs))
    return True


def _isolate_one_way(world: Faulty, node: SimNode) -> bool:
    """It hears some of the others, or all, and they do not hear it, or the other way round."""
    others = [other.node_id for other in world.nodes if other is not node]
    mute = world.chance.random() < 0.5
    others = world.chance.sample(others, world.chance.randint(min(1, len(others)), len(others)))
    pairs = {(node.node_id, other) if mute else (other, node.node_id) for other in others}
    world.network.cut_one_way |= pairs
    world.later(
        world.chance.uniform(0.2, 5), lambda: world.network.cut_one_way.difference_update(pairs)
    )
    return bool(pairs)


def _unplug(world: Faulty, node: SimNode) -> bool:
    world.network.unplug(node.node_id)
    pairs = {pair for pair in world.network.cut if node.node_id in pair}
    world.later(world.chance.uniform(0.2, 5), lambda: world.network.cut.difference_update(pairs))
    return bool(pairs)


def _slow_disk(world: Faulty, node: SimNode) -> bool:
    node.disk_delay_ms = world.chance.choice((30.0, 200.0, 1_500.0))
    node.view_delay_ms = world.chance.choice((1.0, 300.0))

    def recover() -> None:
        node.disk_delay_ms = node.view_delay_ms = 1.0

    world.later(world.chance.uniform(0.5, 4), recover)
    return True


def _hang_disk(world: Faulty, node: SimNode) -> bool:
    """Until everything is taken back: a run is rarely that long."""
    node.hang_disk(world.chance.uniform(*HANG_S))
    return True


def _full_disk(world: Faulty, node: SimNode) -> bool:
    disk = node.disk
    disk.fill_up(world.chance.choice((0, 2_000)))
    world.later(world.chance.uniform(0.5, 4), disk.free)
    return True


def _failing_sync(world: Faulty, node: SimNode) -> bool:
    disk, label = node.disk, world.chance.choice(FAILING_SYNCS)
    disk.fail_sync(label, errno.EIO)
    world.expect_disk_failure(node)
    world.later(world.chance.uniform(0.5, 4), lambda: disk.allow_sync(label))
    return True


def _lose_disk(world: Faulty, node: SimNode) -> bool:
    if not world.may_lose_disk(node):
        return False
    world.lose_disk(node)
    return True


def _interrupted_start(world: Faulty, node: SimNode) -> bool:
    """The disk is lost, and the first starts on the new one are interrupted at some step."""
    if not world.may_lose_disk(node):
        return False
    world.lose_disk(node, interruptions=world.chance.choice((1, 1, 2)))
    return True


def _rot(world: Faulty, node: SimNode) -> bool:
    """The end of the journal turns to garbage while the process is gone."""
    if not world.may_lose_disk(node):
        return False
    if world.chance.random() < 0.7:
        node.crash(keep_some=False)  # Then the mark is an old one.
    else:
        node.kill()
    world.rot(node, world.chance.choice((40, 100, 300, 1_000, 3_000)))
    return True


def _outage(world: Faulty, node: SimNode) -> bool:
    """See ``Outage``."""
    outage = Outage(world, node)
    if outage.is_possible:
        world.background(outage.run())
    return outage.is_possible


def _leap(world: Faulty, node: SimNode) -> bool:
    world.leap(node, world.chance.uniform(0.5, CLOCK_LEAP_S_MAX))
    return True


def _jump_wall_clock(world: Faulty, node: SimNode) -> bool:
    world.jump_wall_clock(node, world.chance.choice((-WALL_JUMP_S, WALL_JUMP_S)))
    return True


def _snapshot(world: Faulty, node: SimNode) -> bool:
    world.snapshot(node)
    return True


def _transfer(world: Faulty, node: SimNode) -> bool:
    world.transfer(node)
    return True


def _network(change: Callable[[SimNetwork, random.Random], None]) -> Injection:
    def inject(world: Faulty, _: SimNode) -> bool:
        network = world.network
        change(network, world.chance)

        def recover() -> None:
            network.loss = network.duplicates = network.reordered = 0.0
            network.delay_ms_max = 2.0

        world.later(world.chance.uniform(0.5, 4), recover)
        return True

    return inject


def _lose(network: SimNetwork, chance: random.Random) -> None:
    network.loss = chance.choice((0.02, 0.2, 0.5))


def _delay(network: SimNetwork, chance: random.Random) -> None:
    network.delay_ms_max = chance.choice((20.0, 100.0, 400.0))


def _reorder(network: SimNetwork, chance: random.Random) -> None:
    network.reordered = chance.choice((0.1, 0.5))


def _duplicate(network: SimNetwork, chance: random.Random) -> None:
    network.duplicates = chance.choice((0.1, 0.5))


FAULTS: tuple[Fault, ...] = (
    Fault("loss", _network(_lose), _RUNNING, of_everybody=True),
    Fault("delay", _network(_delay), _RUNNING, of_everybody=True),
    Fault("reorder", _network(_reorder), _RUNNING, of_everybody=True),
    Fault("duplicate", _network(_duplicate), _RUNNING, of_everybody=True),
    Fault("partition", _isolate, _RUNNING, 3),
    Fault("one-way partition", _isolate_one_way, _RUNNING, 3),
    Fault("unplugged", _unplug, _RUNNING, 3),
    Fault("pause", _freeze, _RUNNING - {State.FROZEN}, 3),
    Fault("crash", _kill, _RUNNING, 4),
    Fault("forgotten bytes", _forget_bytes, _RUNNING, 3),
    Fault("torn write", _tear_write, _RUNNING, 3),
    Fault("power cut of all", _cut_power_of_all, _RUNNING, of_everybody=True),
    Fault("slow disk", _slow_disk, _RUNNING),
    Fault("hanging disk", _hang_disk, _RUNNING),
    Fault("full disk", _full_disk, _RUNNING),
    Fault("failing sync", _failing_sync, _RUNNING),
    Fault("lost disk", _lose_disk, _LOSING_STATES),
    Fault("interrupted start", _interrupted_start, _LOSING_STATES),
    Fault("rot", _rot, _LOSING_STATES),
    Fault("outage", _outage, _LEADING),
    Fault("clock leap", _leap, _RUNNING),
    Fault("wall clock jump", _jump_wall_clock, _RUNNING),
    Fault("snapshot", _snapshot, _THERE - {State.FROZEN}),
    Fault("transfer", _transfer, _LEADING),
)

CHANGES: Mapping[str, frozenset[State]] = {
    "add learner": frozenset({State.LEADER_BUSY, State.LEADER_IDLE, State.SENDING, State.FROZEN}),
    "promote": frozenset(State) - _LEADING - {State.FOLLOWER, State.BEHIND},
    "remove": frozenset(State) - {State.UNVERIFIED, State.CHANGING},
}
"""The target of a membership change: the leader that carries it out, or the member it is about."""

POSSIBLE_CELLS: frozenset[tuple[str, str]] = frozenset(
    (name, state.value)
    for name, states in [*((fault.name, fault.states) for fault in FAULTS), *CHANGES.items()]
    for state in states
)

BY_NAME: Mapping[str, Fault] = {fault.name: fault for fault in FAULTS}
