"""An operator who tends topics: grows, subscribes, terminates and deletes them, by force or not.

Only this operator creates topics in its namespace by name. Producers at the brokers (``residents``)
connect again to what is closed to them, and then a topic may be created on demand.

GrowthHolds            a growth that was answered holds, with the subscriptions of partition 0
SubscriptionsProtect   a topic with a durable subscription is not deleted without force
TerminationHolds       behind an answered termination nothing is acknowledged, see ``residents``
NamesRest              a name is not created on demand while it rests, see ``invariants``
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from nextgen.client import Client, NewTopic
from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.routing.topic_owners import TopicOwners
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import TopicName, parse_topic
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.cluster_simulation.clients.workload import Ledger
from tests.support.cluster_simulation.judges.invariants import TENDED_TENANT, Invariants
from tests.support.cluster_simulation.judges.ledgers import Storage

NAMESPACE = f"{TENDED_TENANT}/all"
CALL_MS = 8_000
PAUSE_S_MAX = 0.8
TOPICS_MAX = 3
"""Of each form at a time: brokers of a run may have few units."""

PARTITIONS_MAX = 4
SUBSCRIPTION = "kept"


class Tender:
    """One process of an operator. ``run`` it in that process's name until ``stopping``."""

    def __init__(
        self,
        endpoints: list[str],
        chance: random.Random,
        ledger: Ledger,
        invariants: Invariants,
        storage: Storage,
        violate: Callable[[str], None],
    ) -> None:
        self.stopping = False
        self._chance = chance
        self._ledger = ledger
        self._invariants = invariants
        self._storage = storage
        self._violate = violate
        self._client = Client(endpoints, timeout_ms=CALL_MS)
        self._raw = DiscoveryNodes(endpoints)
        self._owners = TopicOwners(self._owner_of)
        self._count = 0
        self._plain: dict[str, str] = {}
        """Topics without partitions, with their ids; none of which a deletion was begun."""
        self._partitioned: dict[str, tuple[str, int]] = {}
        """Topics with partitions, with their ids and the number that was answered last."""
        self._broken_off: set[str] = set()
        """Topics of which a growth was not answered, or not with success."""

    async def run(self) -> None:
        doings: tuple[Callable[[], Awaitable[None]], ...] = (
            *(self._create, self._create_partitioned, self._look_up, self._look_up),
            *(self._grow, self._grow, self._subscribe, self._subscribe),
            *(self._terminate, self._delete, self._delete),
        )
        try:
            await self._prepare()
            while not self.stopping:
                await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
                doing = self._chance.choice(doings)
                try:
                    await doing()
                except MetadataError as error:
                    self._ledger.count(f"tended: {type(error).__name__}")
        finally:
            await self._owners.stop()
            await self._client.close()
            await self._raw.close()

    async def _prepare(self) -> None:
        for create, name in (
            (self._client.create_tenant, TENDED_TENANT),
            (self._client.create_namespace, NAMESPACE),
        ):
            while not self.stopping:
                try:
                    await create(name)
                except Refused as refusal:
                    if refusal.code != RejectionCode.ALREADY_EXISTS:
                        self._violate(f"{name} was refused: {refusal}")
                except MetadataError:
                    await asyncio.sleep(0.2)
                    continue
                break

    # What it does -----------------------------------------------------------------------------

    async def _create(self) -> None:
        if len(self._plain) < TOPICS_MAX:
            name, topic_id = await self._created(0)
            self._plain[name] = topic_id
            self._ledger.units[name] = None

    async def _create_partitioned(self) -> None:
        if len(self._partitioned) < TOPICS_MAX:
            name, topic_id = await self._created(1)
            self._partitioned[name] = topic_id, 1
            self._ledger.partitions[name] = topic_id, 1

    async def _created(self, partitions: int) -> tuple[str, str]:
        self._count += 1
        name = f"persistent://{NAMESPACE}/topic-{self._count}"
        (created,) = await self._client.create_topics([NewTopic(name, partitions=partitions)])
        if not created.is_created:
            raise Refused(created.rejection_code, f"{name} was not created")
        self._ledger.count("tended")
        return name, created.topic_id

    async def _look_up(self) -> None:
        """Have units assigned, so that producers come."""
        names = [*self._plain, *self._units()]
        if names:
            chosen = self._chance.sample(names, min(len(names), 3))
            for location in await self._client.lookup(chosen):
                if location.is_found:
                    self._invariants.check_location(location)

    async def _grow(self) -> None:
        if not self._partitioned:
            return
        name = self._chance.choice(list(self._partitioned))
        topic_id, number = self._partitioned[name]
        wanted = min(number + self._chance.choice((1, 1, 2)), PARTITIONS_MAX)
        key = (topic_id, parse_topic(name).of_partition(0).unit.text)
        is_subscribed = key in self._storage.subscribed
        try:
            await self._client.update_partitions(name, wanted)
        except MetadataError:
            # What a growth that broke off has left is for a repetition with its number.
            self._broken_off.add(name)
            raise
        self._partitioned[name] = topic_id, wanted
        self._ledger.partitions[name] = topic_id, wanted
        self._ledger.count("grown")
        is_judged = is_subscribed and name not in self._broken_off
        for partition in range(number, wanted) if is_judged else ():
            unit = parse_topic(name).of_partition(partition)
            stats = await self._owners.call(unit, admin_pb.GetInternalStatsRequest())
            known = [each.subscription for each in stats.cursors]
            # A disk that was lost or is damaged has taken the subscription along.
            is_kept = key in self._storage.subscribed and not self._storage.is_damaged(topic_id)
            if SUBSCRIPTION not in known and is_kept:
                self._violate(f"{unit.text} has {known}, and partition 0 has {SUBSCRIPTION}")
            self._ledger.count("grown with subscription")

    async def _subscribe(self) -> None:
        unit, topic_id = self._any_unit()
        if unit is None:
            return
        request = admin_pb.CreateSubscriptionRequest(subscription=SUBSCRIPTION)
        lost = self._storage.disks_lost
        try:
            await self._owners.call(unit, request)
        except Refused as refusal:
            if refusal.code != RejectionCode.ALREADY_EXISTS:
                raise
        if self._storage.disks_lost == lost:
            self._storage.subscribed.add((topic_id, unit.unit.text))
        self._ledger.count("subscribed")

    async def _terminate(self) -> None:
        if not self._plain or self._chance.random() < 0.5:
            return
        name = self._chance.choice(list(self._plain))
        topic_id = self._plain[name]
        lost = self._storage.disks_lost
        await self._owners.call(parse_topic(name), admin_pb.TerminateRequest())
        if self._storage.disks_lost == lost:
            self._storage.terminated.setdefault((topic_id, ""), self._invariants.freshness.now())
        self._ledger.count("terminated")

    async def _delete(self) -> None:
        names = [*self._plain, *self._partitioned]
        if len(names) < 2:
            return
        name = self._chance.choice(names)
        known = self._partitioned.pop(name, None)
        topic_id = known[0] if known is not None else self._plain.pop(name)
        self._ledger.units.pop(name, None)
        self._ledger.partitions.pop(name, None)
        is_forced = self._chance.random() < 0.6
        protected = {key for key in self._storage.subscribed if key[0] == topic_id}
        try:
            await self._client.delete_topic(name, force=is_forced)
        except Refused as refusal:
            if is_forced or refusal.code != RejectionCode.IN_USE:
                self._violate(f"the only deletion of {name} was refused: {refusal}")
            if known is not None:
                self._partitioned[name] = self._ledger.partitions[name] = known
            else:
                self._plain[name], self._ledger.units[name] = topic_id, None
            self._ledger.count("tended kept")
            return
        is_kept = bool(protected & self._storage.subscribed)
        if is_kept and not is_forced and not self._storage.is_damaged(topic_id):
            self._violate(f"{name} had a subscription and was deleted without force")
        self._ledger.count("tended deleted by force" if is_forced else "tended deleted")

    # Names ------------------------------------------------------------------------------------

    def _units(self) -> list[str]:
        return [
            parse_topic(name).of_partition(each).text
            for name, (_, number) in self._partitioned.items()
            for each in range(number)
        ]

    def _any_unit(self) -> tuple[TopicName | None, str]:
        """Return a topic without partitions or a first partition, and the topic's id."""
        known = [
            *((parse_topic(name), topic_id) for name, topic_id in self._plain.items()),
            *(
                (parse_topic(name).of_partition(0), topic_id)
                for name, (topic_id, _) in self._partitioned.items()
            ),
        ]
        return self._chance.choice(known) if known else (None, "")

    async def _owner_of(self, name: TopicName, is_fresh: bool) -> LookupAnswer:
        request = LookupRequest(topics=[name.text], fresh=is_fresh)
        answer = await self._raw.call("Lookup", request, LookupResponse, timeout_ms=CALL_MS)
        return answer.answers[0]
