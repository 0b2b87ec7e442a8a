"""Clients that contend for a few topics, and the judge of what they were told.

The other clients of the simulation use each name once, so an answer says by itself whether it is
right. These create, change, read, delete, look up and move the same topics at the same time, and
set their policies: which answers fit together is for ``nextgen.harness.history`` to find out.

Each begins at another discovery node. A write may be given up early, or its answer dropped, and
then be repeated with its command id at the next node: after others have written meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.harness.history import Finding, check
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.model import LogEvent, Operation, Record, Run
from nextgen.harness.history.record_file import history_of
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.errors import Definite, MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.replication.ports import Entry
from protos.nextgen.v1.events_pb2 import DecidedCommand
from protos.nextgen.v1.policies_pb2 import Policies
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.simulation import ClusterSimulation

TENANT, NAMESPACE = "contended", "contended/hot"
TOPICS = tuple(f"persistent://{NAMESPACE}/topic-{number}" for number in range(3))
SCOPES = (TENANT, f"persistent://{TENANT}/", f"topic://{TENANT}/")
CALL_MS = 6_000
PAUSE_S_MAX = 0.5
IMPATIENT_MS = (60, 400, CALL_MS)
"""How long a write that will be repeated is waited for at first."""

REPEATED_AFTER_S = (0.0, 0.3, 2.0, 8.0)
"""The longest is longer than outcomes are kept in a plan with a short window."""


class Records(list[Record]):
    """A recorder in memory."""

    def write(self, record: Record) -> None:
        self.append(record)


class RestlessClient:
    """A ``DiscoveryClient`` that gives some writes up and repeats them at the next node.

    It holds the cluster to one outcome of each command: two answers that differ break the run.
    """

    def __init__(self, endpoints: Sequence[str], chance: random.Random) -> None:
        self._clients = [
            DiscoveryClient([*endpoints[first:], *endpoints[:first]], timeout_ms=CALL_MS)
            for first in range(len(endpoints))
        ]
        self._impatient = {
            timeout_ms: [
                DiscoveryClient([endpoint], timeout_ms=timeout_ms) for endpoint in endpoints
            ]
            for timeout_ms in IMPATIENT_MS
        }
        self._chance = chance

    async def close(self) -> None:
        for client in (*self._clients, *(each for of in self._impatient.values() for each in of)):
            await client.__aexit__()

    async def call(self, method: str, request: Message) -> Any:
        """See ``DiscoveryClient.call``."""
        if not getattr(request, "command_id", b"") or self._chance.random() < 0.65:
            return await self._clients[0].call(method, request)
        timeout_ms = self._chance.choice(IMPATIENT_MS)
        first = await _answer_of(self._impatient[timeout_ms][0], method, request)
        await asyncio.sleep(self._chance.choice(REPEATED_AFTER_S))
        second = await _answer_of(self._clients[-1], method, request)
        return _settled(method, first, second)


async def _answer_of(client: DiscoveryClient, method: str, request: Message) -> Any:
    try:
        return await client.call(method, request)
    except MetadataError as error:
        return error


def _settled(method: str, first: Any, second: Any) -> Any:
    """Return or raise the outcome of the command, given the answers to both attempts."""
    known = [each for each in (first, second) if _outcome(each) is not None]
    assert len({_outcome(each) for each in known}) < 2, (
        f"one {method} has two outcomes: {first!r} and {second!r}"
    )
    if known:
        answer = known[0]
    elif isinstance(second, Definite) and not isinstance(first, Definite):
        answer = first
    else:
        answer = second
    if isinstance(answer, MetadataError):
        raise answer
    return answer


def _outcome(answer: Any) -> str | None:
    """Return what an answer says that a repetition must say again; None if it says nothing.

    An owner that still has clients refuses a deletion before its shard is asked (ADR 0076), so that
    is no outcome of the command: the repetition finds what is there by then.
    """
    if isinstance(answer, MetadataError):
        is_decided = isinstance(answer, Refused) and answer.code != RejectionCode.IN_USE
        return answer.code if is_decided else None
    if hasattr(answer, "topics"):
        return " ".join(each.rejection_code or each.topic_id for each in answer.topics)
    return f"{answer.id} {answer.version}"


class Contender:
    """One client process. ``run`` it in that process's name until ``stopping``."""

    def __init__(
        self, name: str, endpoints: list[str], chance: random.Random, records: Records
    ) -> None:
        self.stopping = False
        self._chance = chance
        self._client = RestlessClient(endpoints, chance)
        self._calls = RecordedCalls(name, self._client, records)  # type: ignore[arg-type]
        self._versions: dict[str, int] = {}
        self._policies_versions: dict[str, int] = {}
        self._epochs: dict[str, int] = {}
        self._number = 0

    async def run(self) -> None:
        doings: tuple[Callable[[str], object], ...] = (
            *(self._create, self._create, self._delete, self._set, self._set, self._set),
            *(self._get, self._get, self._get, self._look_up, self._look_up),
            *(self._move, self._move, self._set_policies, self._get_policies),
        )
        try:
            for parent in (TENANT, NAMESPACE):
                while not self.stopping:
                    made = await self._calls.create(parent, {})
                    if made.is_ok or made.refusal == "ALREADY_EXISTS":
                        break
                    await asyncio.sleep(0.2)
            while not self.stopping:
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
                await self._chance.choice(doings)(self._chance.choice(TOPICS))  # type: ignore[misc]
        finally:
            await self._client.close()

    async def _create(self, topic: str) -> None:
        await self._calls.create(topic, self._properties())

    async def _delete(self, topic: str) -> None:
        await self._calls.delete(topic)

    async def _set(self, topic: str) -> None:
        expected = self._versions.get(topic, 0) if self._chance.random() < 0.5 else 0
        self._learn(
            await self._calls.set_properties(topic, self._properties(), expected_version=expected)
        )

    async def _get(self, topic: str) -> None:
        self._learn(await self._calls.get(topic))

    async def _set_policies(self, topic: str) -> None:
        self._number += 1
        expected = self._policies_versions.get(topic) if self._chance.random() < 0.5 else None
        # Reads of policies say the version of the policies, writes that of the object.
        await self._calls.set_policies(
            topic,
            Policies(message_ttl_ms=self._number),
            expected_version=expected,
            effective=self._chance.random() < 0.5,
        )

    async def _get_policies(self, topic: str) -> None:
        version = (await self._calls.get_policies(topic)).value.get("policies_version")
        if isinstance(version, int):
            self._policies_versions[topic] = version

    async def _look_up(self, topic: str) -> None:
        epoch = (await self._calls.lookup(topic)).value.get("epoch")
        if isinstance(epoch, int):
            self._epochs[topic] = epoch

    async def _move(self, topic: str) -> None:
        if topic in self._epochs:
            await self._calls.move(topic, self._epochs.pop(topic))

    def _learn(self, operation: Operation) -> None:
        version = operation.value.get("version")
        if isinstance(version, int):
            self._versions[operation.key] = version

    def _properties(self) -> dict[str, str]:
        self._number += 1
        return {"by": f"{self._calls.name}#{self._number}"}


def contender(
    simulation: ClusterSimulation, number: int, seed: int, records: Records
) -> tuple[SimulatedProcess, Contender]:
    """Return one of a simulation, and its process."""
    process = simulation.client(f"contender-{number}")
    endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
    first = number % len(endpoints)
    endpoints = [*endpoints[first:], *endpoints[:first]]
    chance = random.Random(f"contender {number} {seed}")
    return process, process.run(Contender, f"k{number}", endpoints, chance, records)


def judge(records: Records, entries: Mapping[int, Mapping[int, Entry]]) -> tuple[Finding, ...]:
    """Return what is wrong with the answers in ``records``, and with the shards' ``entries``."""
    ended_ns = max(
        (each.returned_ns or each.invoked_ns for each in records if isinstance(each, Operation)),
        default=0,
    )
    run = Run("simulation", 0, ended_ns, scopes=SCOPES)
    return check(history_of([run, *records, *_log_of(entries)])).findings


def _log_of(entries: Mapping[int, Mapping[int, Entry]]) -> Iterator[LogEvent]:
    for shard_id, of_shard in sorted(entries.items()):
        if not shard_id:
            continue  # The cluster manager's.
        for _, entry in sorted(of_shard.items()):
            position = entry.first_position
            for record in entry.records:
                decided = DecidedCommand.FromString(record.payload)
                for event in decided.events:
                    event.position, event.shard_id, event.term = position, shard_id, entry.term
                    event.causation_id = decided.command_id
                    position += 1
                    yield log_event_of(event)
