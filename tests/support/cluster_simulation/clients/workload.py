"""Clients of the simulated cluster, and what they hold the cluster to.

Every name is used by one client for one create and at most one delete, so an answer that a name
exists already, or is not there, means that a command was carried out twice. A failure that says
that nothing happened is believed, and checked at the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from nextgen.client import Client, NewTopic
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import Definite, MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2 import TopicSpec
from tests.support.cluster_simulation.judges.invariants import Invariants

CALL_MS = 6_000
PAUSE_S_MAX = 0.6
FRESH_SHARE = 0.2
"""Of the lookups: they are to be linearizable."""

TENANTS = ("acme", "globex")


@dataclass(slots=True)
class Ledger:
    """What clients know to be true, from answers alone."""

    created: dict[str, str] = field(default_factory=dict)
    """Acknowledged topics without an attempted deletion: name -> id."""
    refused: dict[str, str] = field(default_factory=dict)
    """Creates whose failure says that they did not happen: name -> error."""
    deleted: dict[str, None] = field(default_factory=dict)
    namespaces: dict[str, None] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    units: dict[str, None] = field(default_factory=dict)
    """Topics that are found in the end, and that may take no message: see ``tender``."""
    partitions: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Partitioned topics that nobody has tried to delete, by name: id, and the acknowledged number
    of partitions."""
    answers: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.answers[what] = self.answers.get(what, 0) + 1


class Workload:
    """One client process. ``run`` it in that process's name until ``stopping``."""

    def __init__(
        self,
        name: str,
        endpoints: list[str],
        chance: random.Random,
        ledger: Ledger,
        invariants: Invariants,
        violate: Callable[[str], None],
    ) -> None:
        self.stopping = False
        self._name = name
        self._chance = chance
        self._ledger = ledger
        self._invariants = invariants
        self._violate = violate
        self._client = Client(endpoints, timeout_ms=CALL_MS)
        self._raw = DiscoveryNodes(endpoints)
        self._count = 0
        self._created: set[str] = set()
        """What this client has created, by the answers it got."""
        self._doings: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._create, self._create, self._look_up, self._look_up, self._look_up),
            *(self._move, self._read, self._repeat, self._delete, self._churn_namespace),
        )

    async def run(self) -> None:
        try:
            await self._prepare()
            while not self.stopping:
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
                doing = self._chance.choice(self._doings)
                try:
                    await doing()
                except MetadataError as error:
                    self._ledger.count(type(error).__name__)
        finally:
            await self._client.close()
            await self._raw.close()

    async def _prepare(self) -> None:
        """Make a tenant and a namespace of this client's own; repeat until it is there."""
        tenant = TENANTS[self._chance.randrange(len(TENANTS))]
        namespace = f"{tenant}/{self._name}"
        for create, name in (
            (self._client.create_tenant, tenant),
            (self._client.create_namespace, namespace),
        ):
            while not self.stopping:
                try:
                    await create(name)
                except Refused as refusal:
                    if refusal.code != "ALREADY_EXISTS":
                        self._violate(f"{name} was refused: {refusal}")
                except MetadataError:
                    await asyncio.sleep(0.2)
                    continue
                break
        self._ledger.namespaces[namespace] = None

    # What it does -----------------------------------------------------------------------------

    async def _create(self) -> None:
        topics = [self._new_topic() for _ in range(self._chance.choice((1, 1, 2, 5)))]
        try:
            created = await self._client.create_topics(topics)
        except MetadataError as error:
            self._note_failed([topic.name for topic in topics], error)
            raise
        for one in created:
            self._note_created(one.name, one.topic_id, one.rejection_code)

    def _note_created(self, name: str, topic_id: str, rejection_code: str) -> None:
        if rejection_code in ("ALREADY_EXISTS", "PARENT_NOT_FOUND"):
            self._violate(f"the only create of {name} was answered {rejection_code}")
        elif rejection_code:
            self._ledger.count(rejection_code)
        else:
            self._invariants.check_created(name, topic_id)
            self._ledger.created[name] = topic_id
            self._created.add(name)
            self._ledger.count("created")

    def _note_failed(self, names: list[str], error: MetadataError) -> None:
        if isinstance(error, Definite):
            for name in names:
                self._ledger.refused[name] = repr(error)

    async def _look_up(self) -> None:
        known = list(self._ledger.created)
        if not known:
            return
        # The newest are asked for by several clients at a time, while they are idle.
        pool = known[-6:] if self._chance.random() < 0.5 else known
        names = self._chance.sample(pool, min(len(pool), self._chance.randint(1, 6)))
        began_at = self._invariants.freshness.now()
        is_fresh = self._chance.random() < FRESH_SHARE
        for location in await self._client.lookup(names, fresh=is_fresh):
            if location.is_found:
                self._invariants.check_location(location)
                self._invariants.freshness.judge(location, began_at, is_fresh=is_fresh)
                self._ledger.epochs[location.topic] = location.epoch
                self._ledger.count("located")
            else:
                code = location.rejection_code
                self._ledger.count(code)
                if code == "NOT_FOUND":
                    self._check_not_found(location.topic, began_at, is_fresh=is_fresh)

    def _check_not_found(self, name: str, began_at: float, *, is_fresh: bool) -> None:
        """What another client created may be absent as long as any answer may be old."""
        if name in self._ledger.created and name in self._created:
            self._violate(f"{name} was acknowledged to this client and is not found")
        self._invariants.freshness.judge_absent(name, began_at, is_fresh=is_fresh)

    async def _move(self) -> None:
        if not self._ledger.epochs:
            return
        name = self._chance.choice(list(self._ledger.epochs))
        epochs = {name: self._ledger.epochs[name]} if self._chance.random() < 0.7 else {}
        began_at = self._invariants.freshness.now()
        for location in await self._client.move_topics({name: ""}, expected_epochs=epochs):
            if location.is_found:
                self._invariants.check_location(location)
                self._invariants.freshness.judge(location, began_at, is_fresh=True)
                self._ledger.epochs[name] = location.epoch
                self._ledger.count("moved")

    async def _read(self) -> None:
        if not self._ledger.created:
            return
        name = self._chance.choice(list(self._ledger.created))
        topic_id = self._ledger.created[name]
        topic = await self._client.get_topic(name)
        if name not in self._ledger.created:
            return  # Somebody began to delete it meanwhile.
        if topic is None or topic.topic_id != topic_id:
            self._violate(f"{name} was acknowledged as {topic_id}, read is {topic}")
        self._ledger.count("read")

    async def _repeat(self) -> None:
        """Send one create again and again with its id: every answer must be the first one."""
        topic = self._new_topic()
        request = pb.CreateTopicsRequest(
            command_id=self._chance.randbytes(COMMAND_ID_BYTES), topics=[TopicSpec(name=topic.name)]
        )
        ids: dict[str, None] = {}
        for _ in range(self._chance.choice((2, 3))):
            try:
                response = await self._raw.call(
                    "CreateTopics", request, pb.CreateTopicsResponse, timeout_ms=CALL_MS
                )
            except MetadataError:
                continue
            outcome = response.topics[0]
            self._note_created(topic.name, outcome.topic_id, outcome.rejection_code)
            if not outcome.rejection_code:
                ids[outcome.topic_id] = None
            self._raw.fail_over(self._raw.endpoint)
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 3.0)))
        if len(ids) > 1:
            self._violate(f"one command made {topic.name} with the ids {list(ids)}")
        self._ledger.count("repeated")

    async def _delete(self) -> None:
        own = [name for name in self._ledger.created if f"/{self._name}/" in name]
        if len(own) < 12:
            return
        name = self._chance.choice(own)
        topic_id = self._ledger.created.pop(name)
        self._ledger.epochs.pop(name, None)
        is_forced = name.endswith(("0", "2", "4", "6", "8"))
        try:
            await self._client.delete_topic(name, force=is_forced)
        except Refused as refusal:
            if refusal.code == RejectionCode.IN_USE and not is_forced:
                self._ledger.created[name] = topic_id
                self._ledger.count("kept in use")
                return
            self._violate(f"the only delete of {name} was refused: {refusal}")
        self._ledger.deleted[name] = None
        self._ledger.count("deleted")

    async def _churn_namespace(self) -> None:
        """Make a namespace, a topic in it, and try to take the namespace away under it."""
        self._count += 1
        tenant = self._chance.choice(TENANTS)
        namespace = f"{tenant}/{self._name}-{self._count}"
        try:
            await self._client.create_namespace(namespace)
        except Refused:
            return  # The other tenant may not be there yet.
        name = f"persistent://{namespace}/only"
        created, removed = await asyncio.gather(
            self._client.create_topics([name]),
            self._client.delete_namespace(namespace),
            return_exceptions=True,
        )
        if isinstance(created, list) and created[0].is_created:
            self._invariants.check_created(name, created[0].topic_id)
            if not isinstance(removed, BaseException):
                self._violate(f"{namespace} was deleted and {name} was created in it")
            self._ledger.created[name] = created[0].topic_id
        self._ledger.count("churned")

    def _new_topic(self) -> NewTopic:
        self._count += 1
        (namespace,) = [n for n in self._ledger.namespaces if n.endswith(f"/{self._name}")]
        return NewTopic(f"persistent://{namespace}/topic-{self._count}")


def check_at_end(ledger: Ledger, invariants: Invariants, violate: Callable[[str], None]) -> None:
    """Nothing acknowledged is lost, nothing that failed for certain has happened."""
    for name, topic_id in ledger.created.items():
        if invariants.topics.get(name) != topic_id:
            violate(f"{name} was acknowledged and is lost")
    for name, why in ledger.refused.items():
        if name in invariants.ever_created and name not in ledger.created:
            violate(f"{name} was created, its client was told that it was not: {why}")
    for name in ledger.deleted:
        if name in invariants.topics:
            violate(f"{name} was deleted and is there")
    for name, (topic_id, number) in ledger.partitions.items():
        if invariants.topics.get(name) != topic_id:
            violate(f"{name} was acknowledged and is lost")
        elif invariants.partitions[topic_id] < number:
            violate(f"{name} has {invariants.partitions[topic_id]} of {number} partitions")
