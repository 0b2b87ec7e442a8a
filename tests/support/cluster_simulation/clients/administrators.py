"""Administrators of the cluster while others use it: policies, drains, unloads.

Each does one thing at a time, in a tenant in which nobody else writes policies: what is effective
when it was answered so is known exactly. The first of them drains brokers as well.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nextgen.client import Client
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import Definite, MetadataError, Refused
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.policies_pb2 import Policies
from tests.support.cluster_simulation.clients.workload import Ledger
from tests.support.cluster_simulation.judges.invariants import Invariants

TOPICS = 4
"""Topics of each administrator: few, so that some have units and change often."""

CALL_MS = 8_000
EFFECTIVE_MS = 30_000
"""More than a subscriber that is gone may delay an effective write for."""

PAUSE_S_MAX = 1.0
UNDONE_S_MAX = 40.0
"""After the last fault every drain is taken back within it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One write of policies, as the administrator sent it."""

    name: str
    ttl_ms: int
    expected_version: int


class Administrator:
    """One client process. ``run`` it in that process's name until ``stopping``."""

    def __init__(
        self,
        number: int,
        endpoints: list[str],
        brokers: Iterable[str],
        chance: random.Random,
        ledger: Ledger,
        invariants: Invariants,
        check_effective: Callable[[str, str, int], None],
    ) -> None:
        self.stopping = False
        self._tenant, self._namespace = f"governed-{number}", f"governed-{number}/all"
        self._topics = [f"persistent://{self._namespace}/topic-{each}" for each in range(TOPICS)]
        self._brokers = tuple(brokers)
        self._chance = chance
        self._ledger = ledger
        self._invariants = invariants
        self._check_effective = check_effective
        self._client = Client(endpoints, timeout_ms=CALL_MS)
        self._raw = DiscoveryNodes(endpoints)
        self._number = 0
        self._draining: dict[str, None] = {}
        self._unclear: dict[str, None] = {}
        """Names of which a write failed that may have been carried out."""
        self._versions: dict[str, int] = {}
        self._doings: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._set_policies, self._set_policies, self._set_policies, self._look_up),
            *(self._read_policies, self._unload),
            *((self._drain,) if number == 1 else ()),
        )

    async def run(self) -> None:
        try:
            await self._prepare()
            while not self.stopping:
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
                try:
                    await self._chance.choice(self._doings)()
                except MetadataError as error:
                    self._ledger.count(f"administrator: {type(error).__name__}")
            await self._undo_drains()
        finally:
            await self._client.close()
            await self._raw.close()

    async def _undo_drains(self) -> None:
        """End every drain, and repeat the call until it is acknowledged."""
        async with timeout(UNDONE_S_MAX):
            for broker_id in list(self._draining):
                while broker_id in self._draining:
                    try:
                        await self._set_drain(broker_id, undo=True)
                    except MetadataError:
                        await asyncio.sleep(0.5)

    async def _prepare(self) -> None:
        for create, name in (
            (self._client.create_tenant, self._tenant),
            (self._client.create_namespace, self._namespace),
            *((self._create_topic, name) for name in self._topics),
        ):
            while not self.stopping:
                try:
                    await create(name)
                except Refused as refusal:
                    if refusal.code != "ALREADY_EXISTS":
                        self._invariants.complain(f"{name} was refused: {refusal}")
                except MetadataError:
                    await asyncio.sleep(0.2)
                    continue
                break

    async def _create_topic(self, name: str) -> Any:
        (created,) = await self._client.create_topics([name])
        if created.is_created:
            self._ledger.created[name] = created.topic_id
        return created

    # What it does -----------------------------------------------------------------------------

    async def _look_up(self) -> None:
        """Assign the topics, so that brokers hold their metadata."""
        for location in await self._client.lookup(self._topics):
            if location.is_found:
                self._invariants.check_location(location)

    async def _set_policies(self) -> None:
        self._number += 1
        name = self._chance.choice((self._tenant, self._namespace, *self._topics))
        known = self._versions.get(name, 0)
        expected = known if self._chance.random() < 0.5 and name not in self._unclear else 0
        request = pb.SetPoliciesRequest(
            command_id=self._chance.randbytes(COMMAND_ID_BYTES),
            name=name,
            policies=Policies(message_ttl_ms=self._number),
            expected_version=expected,
        )
        is_effective = self._chance.random() < 0.7
        if is_effective:
            request.consistency = shard_pb.CONSISTENCY_EFFECTIVE
        timeout_ms = EFFECTIVE_MS if is_effective else CALL_MS
        try:
            written = await self._raw.call(
                "SetPolicies", request, pb.WriteResponse, timeout_ms=timeout_ms
            )
        except MetadataError as error:
            if not isinstance(error, Definite):
                self._unclear[name] = None
            self._ledger.count(f"policies: {type(error).__name__}")
            if isinstance(error, Refused) and expected:
                self._invariants.complain(f"the only writer of {name} was refused: {error}")
            return
        self._unclear.pop(name, None)
        self._versions[name] = self._invariants.policies[written.id][0]
        if self._invariants.versions.get(written.id, 0) < written.version:
            self._invariants.complain(f"{name} was told to be in version {written.version}")
        self._ledger.count("effective" if is_effective else "policies set")
        if is_effective:
            self._check_effective(name, written.id, written.version)

    async def _read_policies(self) -> None:
        name = self._chance.choice((self._tenant, self._namespace, *self._topics))
        request = pb.GetPoliciesRequest(name=name, merged=self._chance.random() < 0.5)
        before = self._versions.get(name, 0)
        answer = await self._raw.call(
            "GetPolicies", request, pb.GetPoliciesResponse, timeout_ms=CALL_MS
        )
        if answer.version < before:
            self._invariants.complain(f"{name} has policies {answer.version}, told was {before}")
        self._ledger.count("policies read")

    async def _drain(self) -> None:
        if self._draining:
            await self._set_drain(self._chance.choice(sorted(self._draining)), undo=True)
        else:
            await self._set_drain(self._chance.choice(self._brokers), undo=False)

    async def _set_drain(self, broker_id: str, *, undo: bool) -> None:
        request = shard_pb.DrainRequest(
            broker_id=broker_id, undo=undo, units_per_second=self._chance.choice((0, 5, 1_000))
        )
        if not undo:
            # Whatever is answered, it may have been carried out.
            self._draining[broker_id] = None
        try:
            await self._raw.call("DrainBroker", request, shard_pb.DrainResponse, timeout_ms=CALL_MS)
        except Refused as refusal:
            # It has no session, so there is nothing to drain; or it is the last one.
            self._draining.pop(broker_id, None)
            self._ledger.count(f"drain refused: {refusal.code}")
            return
        if undo:
            self._draining.pop(broker_id, None)
        self._ledger.count("drain undone" if undo else "drained")

    async def _unload(self) -> None:
        names = self._chance.sample(self._topics, 2)
        await self._raw.call(
            "UnloadTopics",
            pb.UnloadTopicsRequest(topics=names),
            pb.UnloadTopicsResponse,
            timeout_ms=CALL_MS,
        )
        self._ledger.count("unloaded")
