"""The job that puts a recorded load on a cluster that is being broken.

    mixed lanes   contend for a few hot names (creates, deletes, changes and reads of properties and
                  policies of the same topics and namespaces), and make many cold ones: create,
                  rename, look up, move, read, by each of a topic's names
    rename lane   renames topics that have clients, each time by the first name, which they use
    probe lanes   change one topic each in a given shard, one change after the other, which shows
                  when the shard commits

Each lane has its own pace and does not catch up after a delay. The job sends {"tick": {asked,
acked}}.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.history.model import Operation, object_kind
from nextgen.harness.history.record_file import Recorder
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.harness.load.reporter import Reporter
from nextgen.tasks.groups import TaskGroup
from protos.nextgen.v1.policies_pb2 import AUTH_ACTION_PRODUCE, Policies

TICK_INTERVAL_MS = 500
OPERATION_TIMEOUT_MS = 10_000
"""An operation is given up after this. Its outcome is unknown, unless each attempt was refused."""

COLD_NAMES_MAX = 200
"""Cold topics that a lane uses again; beyond it the oldest is forgotten."""

TTL_MS_FIRST = 10 * 24 * 3_600_000
"""Time-to-live in policies: so long that nothing expires, plus a number that identifies the writer:
the lane's number followed by the operation's."""

POLICIES_NUMBER_BITS = 20
FRESH_SHARE = 0.3
"""Part of the lookups at one node that are fresh; the others may be answered from its cache."""

EFFECTIVE_SHARE = 0.3
"""Part of the changes of hot policies that wait until effective; the others wait for commit."""

NAME_GRACE_MS = 24 * 3_600_000
"""How long former names lead to their topics: until the run is judged, although clocks leap."""

RENAME_INTERVAL_MS = 15_000
"""Between two renames of a topic that has clients, each of which costs them a lookup."""

HOT_READ_WEIGHT = 30
_MIX: tuple[tuple[str, int], ...] = (
    ("hot_create", 14),
    ("hot_delete", 10),
    ("hot_set", 18),
    ("hot_get", HOT_READ_WEIGHT),
    ("cold_create", 14),
    ("cold_set", 4),
    ("cold_get", 6),
    ("cold_lookup", 10),
    ("cold_lookup_at", 8),
    ("cold_move", 3),
    ("cold_rename", 4),
    ("cold_delete", 5),
    ("hot_policies_set", 10),
    ("hot_policies_get", 6),
    ("cold_policies_set", 3),
)
"""Weights of a mixed lane's operations."""


async def chaos_load(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Run lanes until stopped; return the numbers of requests and acknowledgements.

    ``client`` is the name in the history, ``hot`` the contended keys (topics are created and
    deleted, namespaces only changed), ``cold`` the namespace of all others, ``probes`` one topic
    for each probe lane, ``renamed`` topics with clients that are renamed, ``interval_ms`` the pace
    of a lane, ``history`` the file.
    """
    calls: list[RecordedCalls] = []
    with Recorder(Path(job["history"])) as recorder:
        clients = [_client(job, place) for place in range(len(job["targets"]))]
        try:
            lanes: list[Callable[[], Awaitable[None]]] = []
            for number in range(job["mixed"]):
                name = f"{job['client']}-mixed-{number}"
                calls.append(RecordedCalls(name, clients[number % len(clients)], recorder))
                lanes.append(_MixedLane(job, calls[-1], reporter).run)
            for number, key in enumerate(job["probes"]):
                name = f"{job['client']}-probe-{number}"
                calls.append(RecordedCalls(name, clients[number % len(clients)], recorder))
                lanes.append(_ProbeLane(job, calls[-1], reporter, key).run)
            if job["renamed"]:
                calls.append(RecordedCalls(f"{job['client']}-rename", clients[0], recorder))
                lanes.append(_RenameLane(calls[-1], reporter, job["renamed"]).run)
            await _run_all(lanes, calls, reporter)
        finally:
            for client in clients:
                await client.__aexit__()
    not_understood = next((one.not_understood for one in calls if one.not_understood), "")
    return _sums(calls) | {"not_understood": not_understood}


def _client(job: dict[str, Any], place: int) -> DiscoveryClient:
    """Return a client that begins with the target of that place."""
    targets = job["targets"]
    return DiscoveryClient([*targets[place:], *targets[:place]], timeout_ms=OPERATION_TIMEOUT_MS)


async def _run_all(
    lanes: Sequence[Callable[[], Awaitable[None]]], calls: list[RecordedCalls], reporter: Reporter
) -> None:
    async def tell() -> None:
        while True:
            await asyncio.sleep(TICK_INTERVAL_MS / 1000)
            reporter.send({"tick": _sums(calls)})

    telling = asyncio.create_task(tell())
    try:
        async with TaskGroup() as tasks:
            for lane in lanes:
                tasks.create_task(_as_coroutine(lane))
    finally:
        telling.cancel()


async def _as_coroutine(lane: Callable[[], Awaitable[None]]) -> None:
    await lane()


def _sums(calls: Sequence[RecordedCalls]) -> dict[str, int]:
    return {
        "asked": sum(one.asked for one in calls),
        "acked": sum(one.acknowledged for one in calls),
        "renames": sum(one.renames for one in calls),
    }


class _Pace:
    """Waits between the operations of a lane, and ends it."""

    def __init__(self, interval_ms: float, reporter: Reporter) -> None:
        self._interval_s = interval_ms / 1000
        self._next_at = time.monotonic() + random.uniform(0, self._interval_s)
        self._stopping = reporter.stopping

    async def goes_on(self) -> bool:
        wait_s = self._next_at - time.monotonic()
        if wait_s > 0 and not self._stopping.is_set():
            await asyncio.sleep(wait_s)
        self._next_at = max(self._next_at + self._interval_s, time.monotonic())
        return not self._stopping.is_set()


class _MixedLane:
    def __init__(self, job: dict[str, Any], calls: RecordedCalls, reporter: Reporter) -> None:
        self._calls = calls
        self._hot: list[str] = job["hot"]
        self._nodes: list[str] = job["targets"]
        self._cold_namespace: str = job["cold"]
        self._pace = _Pace(job["interval_ms"], reporter)
        self._chooser = random.Random(f"{job['seed']} {calls.name}")
        self._cold: list[str] = []
        self._versions: dict[str, int] = {}
        self._policies_versions: dict[str, int] = {}
        self._lane_number = zlib.crc32(calls.name.encode())
        self._epochs: dict[str, int] = {}
        self._number = 0

    async def run(self) -> None:
        names = [name for name, _ in _MIX]
        weights = [weight for _, weight in _MIX]
        while await self._pace.goes_on():
            (name,) = self._chooser.choices(names, weights)
            self._number += 1
            await getattr(self, f"_{name}")()

    async def _hot_create(self) -> None:
        await self._calls.create(self._hot_topic(), self._properties())

    async def _hot_delete(self) -> None:
        await self._calls.delete(self._hot_topic())

    async def _hot_set(self) -> None:
        key = self._chooser.choice(self._hot)
        # Half of them on condition of the version that was read.
        expected = self._versions.get(key, 0) if self._chooser.random() < 0.5 else 0
        self._learn(
            await self._calls.set_properties(key, self._properties(), expected_version=expected)
        )

    async def _hot_get(self) -> None:
        self._learn(await self._calls.get(self._chooser.choice(self._hot)))

    async def _cold_create(self) -> None:
        key = self._cold_name()
        await self._calls.create(key, self._properties())
        self._add_cold(key)

    async def _cold_set(self) -> None:
        if self._cold:
            await self._calls.set_properties(self._chooser.choice(self._cold), self._properties())

    async def _cold_get(self) -> None:
        if self._cold:
            await self._calls.get(self._chooser.choice(self._cold))

    async def _cold_delete(self) -> None:
        if self._cold:
            place = self._chooser.randrange(len(self._cold))
            await self._calls.delete(self._cold.pop(place))

    async def _cold_rename(self) -> None:
        """Give a topic another name of its own. Both names are used from then on."""
        if self._cold:
            key = self._chooser.choice(self._cold)
            new_name = f"{self._cold_name()}-again"
            renamed = await self._calls.rename(key, new_name, grace_ms=NAME_GRACE_MS)
            if renamed.may_have_happened:
                self._add_cold(new_name)

    async def _cold_lookup(self) -> None:
        if self._cold:
            self._learn_epoch(await self._calls.lookup(self._chooser.choice(self._cold)))

    async def _cold_lookup_at(self) -> None:
        """Look up, at one node, a topic that was looked up or moved before: it may be cached
        there."""
        if self._epochs:
            key = self._chooser.choice(tuple(self._epochs))
            node = self._chooser.choice(self._nodes)
            fresh = self._chooser.random() < FRESH_SHARE
            await self._calls.lookup_at(key, node, fresh=fresh)

    async def _cold_move(self) -> None:
        if self._epochs:
            key = self._chooser.choice(tuple(self._epochs))
            self._learn_epoch(await self._calls.move(key, self._epochs.pop(key)))

    async def _hot_policies_set(self) -> None:
        key = self._chooser.choice(self._hot)
        # Half of them on condition of the version that was read; one in five clears them.
        expected = self._policies_versions.get(key, 0) if self._chooser.random() < 0.5 else None
        policies = self._policies() if self._chooser.random() < 0.8 else None
        await self._calls.set_policies(
            key,
            policies,
            expected_version=expected,
            effective=self._chooser.random() < EFFECTIVE_SHARE,
        )

    async def _hot_policies_get(self) -> None:
        self._learn(await self._calls.get_policies(self._chooser.choice(self._hot)))

    async def _cold_policies_set(self) -> None:
        """Change policies of a topic that a broker may have, because it was looked up."""
        if self._epochs:
            key = self._chooser.choice(tuple(self._epochs))
            await self._calls.set_policies(key, self._policies(), effective=True)

    def _cold_name(self) -> str:
        """Return a name that no other operation gives."""
        return f"persistent://{self._cold_namespace}/{self._calls.name}-{self._number}"

    def _add_cold(self, key: str) -> None:
        self._cold.append(key)
        del self._cold[:-COLD_NAMES_MAX]

    def _hot_topic(self) -> str:
        topics = [key for key in self._hot if object_kind(key) == "topic"]
        return self._chooser.choice(topics)

    def _properties(self) -> dict[str, str]:
        """Return properties unique to this operation, so that a read identifies the writer."""
        return {"by": f"{self._calls.name}#{self._number}"}

    def _policies(self) -> Policies:
        """Return policies that are unique to this operation, and have no effect on messages.

        Every other one permits a role, so that grants and revocations are in the history, too.
        """
        number = (self._lane_number << POLICIES_NUMBER_BITS) + self._number
        policies = Policies(message_ttl_ms=TTL_MS_FIRST + number)
        if number % 2:
            policies.permissions.add(role=f"writer-{number}", actions=[AUTH_ACTION_PRODUCE])
        return policies

    def _learn_epoch(self, operation: Operation) -> None:
        epoch = operation.value.get("epoch")
        if operation.is_ok and isinstance(epoch, int):
            self._epochs[operation.key] = epoch
        if len(self._epochs) > COLD_NAMES_MAX:
            del self._epochs[next(iter(self._epochs))]

    def _learn(self, operation: Operation) -> None:
        policies_version = operation.value.get("policies_version")
        if isinstance(policies_version, int):
            self._policies_versions[operation.key] = policies_version
        version = operation.value.get("version")
        if isinstance(version, int):
            self._versions[operation.key] = version


class _ProbeLane:
    def __init__(
        self, job: dict[str, Any], calls: RecordedCalls, reporter: Reporter, key: str
    ) -> None:
        self._calls = calls
        self._key = key
        self._pace = _Pace(job["interval_ms"], reporter)

    async def run(self) -> None:
        number = 0
        while await self._pace.goes_on():
            number += 1
            await self._calls.set_properties(self._key, {"by": f"{self._calls.name}#{number}"})


class _RenameLane:
    """Renames topics in turn, by their first names. Once as many names lead to one as may, its home
    refuses."""

    def __init__(self, calls: RecordedCalls, reporter: Reporter, topics: Sequence[str]) -> None:
        self._calls = calls
        self._topics = topics
        self._pace = _Pace(RENAME_INTERVAL_MS / len(topics), reporter)

    async def run(self) -> None:
        number = 0
        while await self._pace.goes_on():
            topic = self._topics[number % len(self._topics)]
            number += 1
            await self._calls.rename(topic, f"{topic}-as-{number}", grace_ms=NAME_GRACE_MS)
