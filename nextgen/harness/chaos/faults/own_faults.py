"""Makes one fault at a time on a cluster that the run started, and undoes it.

A fault counts only if it took effect: the process was alive before and dead after, packets were
dropped, fsyncs were delayed, the clock was read while it was off. In every case a fault is undone
before ``carry_out`` returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import psutil

from nextgen.harness.chaos.faults.api_faults import ApiFaults
from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.faults.targets import Target, Targets, unsettled
from nextgen.harness.chaos.nodes.chaos_cluster import ChaosCluster
from nextgen.harness.chaos.nodes.network import Link
from nextgen.harness.chaos.schedule import THROUGH_THE_API, Cut, FaultKind, FaultStep, Group
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Unavailable
from nextgen.tasks.timeouts import timeout

READY_TIMEOUT_MS = 90_000
"""Time-out until the broken nodes are well again. A machine with two cores starts eleven processes
in ten seconds; the rest is slack for a busy machine."""

SETTLE_INTERVAL_MS = 300
LAG_EVENTS_MAX = 500
CHOOSE_ATTEMPTS = 40
"""A leader may be missing for a moment, because a fault of another group has just ended."""

FULL_BELOW_BYTES = 64 * 1024
"""A disk counts as full with less free space than this, or than one block above the request."""


@dataclass(slots=True)
class _Evidence:
    took_hold: bool = False
    detail: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        self.detail.append(sentence)


class FaultMaker:
    """See the module."""

    def __init__(self, cluster: ChaosCluster, targets: Targets) -> None:
        self.api = ApiFaults(cluster.plan.discovery_endpoints, targets.status)
        self._cluster = cluster
        self._targets = targets

    async def carry_out(self, step: FaultStep) -> Happened:
        """Make the fault of ``step`` for its duration, and undo it. The node may not be well yet.

        Raises:
            MetadataError: There is no target at the moment, or it did not start again.
        """
        if step.kind is FaultKind.RESTART_ALL:
            return await self._restart_all(step)
        if step.kind in THROUGH_THE_API:
            return await self.api.carry_out(step)
        target = await self._choose(step)
        evidence = _Evidence()
        way = {
            FaultKind.KILL: self._killed,
            FaultKind.PAUSE: self._paused,
            FaultKind.PARTITION: self._partitioned,
            FaultKind.DISK_FULL: self._disk_full,
            FaultKind.DISK_SLOW: self._disk_slow,
            FaultKind.CLOCK: self._clock_off,
        }[step.kind]
        began_ns = time.monotonic_ns()
        async with way(step, target, evidence):
            await asyncio.sleep(step.for_ms / 1000)
        ended_ns = time.monotonic_ns()
        detail = ", ".join(evidence.detail)
        return Happened(step, target, began_ns, ended_ns, evidence.took_hold, 1, detail)

    async def wait_well(self, group: Group) -> None:
        """Return when all nodes of a group are up, have leaders, and keep up.

        Raises:
            RefusesToStart: A process ended.
            DeadlineExceeded: The group did not recover in time.
        """
        if group in (Group.UNITS, Group.SLOTS):
            return  # Nothing was broken: a fault that could not be undone was reported already.
        kinds = [group.value] if group is not Group.ALL else [g.value for g in Group]
        names = [node.node_id for node in self._cluster.plan.nodes if node.kind in kinds]
        await self._cluster.wait_ready(names, timeout_ms=READY_TIMEOUT_MS)
        if group in (Group.SHARD_NODE, Group.ALL):
            await self._wait_shards()

    async def undo_all(self) -> None:
        """Undo all faults that may still be in effect; harmless if there are none."""
        for node_id, control in self._cluster.controls.items():
            control.delay_fsyncs(0)
            control.shift_clock(0)
            process_id = self._cluster.process_id(node_id)
            if process_id is not None:
                _signal(process_id, signal.SIGCONT)
        for disk in self._cluster.disks.values():
            disk.free()
        if self._cluster.network is not None:
            await asyncio.to_thread(self._cluster.network.heal)
        await self.api.undo_all()

    # ------------------------------------------------------------------------------------------

    async def _choose(self, step: FaultStep) -> Target:
        for attempt in range(CHOOSE_ATTEMPTS):
            try:
                return await self._targets.choose(step)
            except MetadataError:
                if attempt == CHOOSE_ATTEMPTS - 1:
                    raise
                await asyncio.sleep(SETTLE_INTERVAL_MS / 1000)
        raise AssertionError("the last attempt returns or raises")

    async def _wait_shards(self) -> None:
        lacking: object = "the cluster did not answer"
        try:
            async with timeout(READY_TIMEOUT_MS / 1000):
                while lacking:
                    try:
                        lacking = unsettled(await self._targets.status(), LAG_EVENTS_MAX)
                    except MetadataError as error:
                        lacking = str(error)
                    if lacking:
                        await asyncio.sleep(SETTLE_INTERVAL_MS / 1000)
        except TimeoutError:
            raise DeadlineExceeded(f"not well after {READY_TIMEOUT_MS} ms: {lacking}") from None

    async def _restart_all(self, step: FaultStep) -> Happened:
        nodes = self._cluster.running
        began_ns = time.monotonic_ns()
        for node_id in nodes:
            self._cluster.strike(node_id)
        for node_id in nodes:
            await self._cluster.kill(node_id)
        are_dead = not self._cluster.running
        await asyncio.sleep(step.for_ms / 1000)
        for node in self._cluster.plan.nodes:
            await self._cluster.start_node(node.node_id)
        ended_ns = time.monotonic_ns()
        detail = f"SIGKILL to all {len(nodes)} at once"
        return Happened(step, Target("all"), began_ns, ended_ns, are_dead, len(nodes), detail)

    @asynccontextmanager
    async def _killed(
        self, _step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        was_alive = self._cluster.is_running(target.node_id)
        if was_alive:
            await self._cluster.kill(target.node_id)
        evidence.took_hold = was_alive and not self._cluster.is_running(target.node_id)
        evidence.say(f"SIGKILL{_leads(target)}")
        try:
            yield
        finally:
            await self._cluster.start_node(target.node_id)

    @asynccontextmanager
    async def _paused(
        self, _step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        process_id = self._cluster.process_id(target.node_id)
        if process_id is None:
            raise Unavailable(f"{target.node_id} is not running")
        _signal(process_id, signal.SIGSTOP)
        evidence.say(f"SIGSTOP{_leads(target)}")
        try:
            yield
            evidence.took_hold = _is_stopped(process_id)
        finally:
            _signal(process_id, signal.SIGCONT)

    @asynccontextmanager
    async def _partitioned(
        self, step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        network = self._cluster.network
        assert network is not None, "without networks nothing is partitioned"
        others = [n.node_id for n in self._cluster.plan.nodes if n.node_id != target.node_id]
        kin = sorted(
            node.node_id
            for node in self._cluster.plan.of_kind(step.group)
            if node.node_id != target.node_id
        )
        links, sentence = links_of(
            Cut(str(step.detail["cut"])), target.node_id, others, kin[step.pick % len(kin)]
        )
        before = await asyncio.to_thread(network.dropped)
        try:
            await asyncio.to_thread(network.cut, links)
            evidence.say(sentence + _leads(target))
            yield
        finally:
            await asyncio.to_thread(network.mend, links)
        dropped = await asyncio.to_thread(network.dropped) - before
        evidence.took_hold = dropped > 0
        evidence.say(f"{dropped} packets dropped")

    @asynccontextmanager
    async def _disk_full(
        self, step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        disk = self._cluster.disks[target.node_id]
        leave_bytes = cast(int, step.detail["leave_bytes"])
        try:
            await asyncio.to_thread(disk.fill, leave_bytes)
            evidence.took_hold = disk.free_bytes < FULL_BELOW_BYTES
            evidence.say(f"filled, {disk.free_bytes} bytes left{_leads(target)}")
            yield
        finally:
            disk.free()

    @asynccontextmanager
    async def _disk_slow(
        self, step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        control = self._cluster.controls[target.node_id]
        delay_ms = cast(int, step.detail["delay_ms"])
        before = control.fsyncs_delayed
        control.delay_fsyncs(delay_ms)
        try:
            yield
        finally:
            control.delay_fsyncs(0)
        delayed = control.fsyncs_delayed - before
        evidence.took_hold = delayed > 0
        evidence.say(f"{delayed} fsyncs took {delay_ms} ms longer{_leads(target)}")

    @asynccontextmanager
    async def _clock_off(
        self, step: FaultStep, target: Target, evidence: _Evidence
    ) -> AsyncIterator[None]:
        control = self._cluster.controls[target.node_id]
        offset_ms = cast(int, step.detail["offset_ms"])
        before = control.clock_readings_shifted
        control.shift_clock(offset_ms)
        try:
            yield
        finally:
            control.shift_clock(0)
        read = control.clock_readings_shifted - before
        evidence.took_hold = read > 0
        evidence.say(f"off by {offset_ms:+,} ms, read {read} times{_leads(target)}")


def links_of(cut: Cut, node_id: str, others: list[str], peer: str) -> tuple[list[Link], str]:
    """Return the links of a cut, and a description."""
    hears = [Link(sender=other, receiver=node_id) for other in others]
    is_heard = [Link(sender=node_id, receiver=other) for other in others]
    if cut is Cut.ISOLATED:
        return hears + is_heard, "neither receives nor sends"
    if cut is Cut.DEAF:
        return hears, "receives nothing"
    if cut is Cut.MUTE:
        return is_heard, "cannot send"
    return [Link(node_id, peer), Link(peer, node_id)], f"cut from {peer}"


def _signal(process_id: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # Its own end is reported elsewhere.
        os.kill(process_id, number)


def _is_stopped(process_id: int) -> bool:
    try:
        return psutil.Process(process_id).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _leads(target: Target) -> str:
    if not target.shards:
        return ""
    return f", leads shards {', '.join(map(str, target.shards))}"
