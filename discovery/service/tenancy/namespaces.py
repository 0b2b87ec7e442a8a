"""Namespaces as Pulsar's tools see them: created with policies, unloaded as a whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from discovery.service.admin.deadline import Deadline
from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.listing import ListingService
from discovery.service.admin.moves import MoveService
from discovery.service.tenancy.pages import every_item, name_batches, repeated_change
from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import DeadlineExceeded, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from protos.nextgen.v1.inventory_pb2 import Item, Namespace


class NamespaceService:
    """``name`` is ``tenant/namespace``. Every method raises ``MetadataError`` kinds only."""

    def __init__(
        self, inventory: InventoryService, listing: ListingService, moves: MoveService
    ) -> None:
        self._inventory = inventory
        self._listing = listing
        self._moves = moves

    def names(self, tenant: str, deadline: Deadline) -> AsyncGenerator[Sequence[str]]:
        """Yield the names of a tenant's namespaces, ascending, in batches."""
        return name_batches(self._listing.list_namespaces, deadline, parent=tenant)

    async def read(self, name: str, deadline: Deadline) -> Namespace:
        """Return a namespace.

        Raises:
            Refused: NOT_FOUND.
        """
        response = await self._inventory.get_namespace(
            pb.GetObjectRequest(name=name), deadline.remaining_ms()
        )
        if not response.item.HasField("namespace"):
            raise Refused(RejectionCode.NOT_FOUND, f"namespace {name} does not exist")
        return response.item.namespace

    async def create(
        self, name: str, policies: Policies, properties: Mapping[str, str], deadline: Deadline
    ) -> None:
        """Create a namespace that has its policies from its first moment on.

        Raises:
            Refused: ALREADY_EXISTS, PARENT_NOT_FOUND, or the rules say no.
        """
        await self._inventory.create_namespace(
            pb.CreateNamespaceRequest(
                name=name,
                properties=properties,
                policies=None if policies == NO_POLICIES else policies_to_proto(policies),
            ),
            deadline.remaining_ms(),
        )

    async def delete(self, name: str, deadline: Deadline) -> None:
        """Delete a namespace.

        Raises:
            Refused: NOT_FOUND, NOT_EMPTY.
        """
        await self._inventory.delete_namespace(pb.DeleteRequest(name=name), deadline.remaining_ms())

    async def change_properties(
        self,
        name: str,
        deadline: Deadline,
        *,
        added: Mapping[str, str] | None = None,
        removed: Sequence[str] = (),
        clear: bool = False,
    ) -> None:
        """Add, replace or remove properties.

        Raises:
            Refused: NOT_FOUND, LIMIT_EXCEEDED.
        """

        async def attempt() -> None:
            found = await self.read(name, deadline)
            kept = {} if clear else dict(found.properties)
            kept.update(added or {})
            for key in removed:
                kept.pop(key, None)
            await self._inventory.set_namespace_properties(
                pb.SetPropertiesRequest(name=name, properties=kept, expected_version=found.version),
                deadline.remaining_ms(),
            )

        await repeated_change(attempt)

    async def unload(self, name: str, target_broker_id: str, deadline: Deadline) -> None:
        """Take every topic from its broker, or move it to ``target_broker_id``.

        Raises:
            Refused: NOT_FOUND.
            DeadlineExceeded: Some may still be on their brokers: repeat it.
        """
        await self.read(name, deadline)
        units: list[str] = []
        async for topic in every_item(self._listing.list_topics, deadline, parent=name):
            units += _units(topic)
            while len(units) >= MOVES_PER_REQUEST_MAX:
                batch, units = units[:MOVES_PER_REQUEST_MAX], units[MOVES_PER_REQUEST_MAX:]
                await self._unload(batch, target_broker_id, deadline)
        if units:
            await self._unload(units, target_broker_id, deadline)

    async def _unload(
        self, units: Sequence[str], target_broker_id: str, deadline: Deadline
    ) -> None:
        remaining_ms = deadline.remaining_ms("in the middle of an unload")
        if target_broker_id:
            moves = [
                shard_pb.TopicMove(topic=unit, target_broker_id=target_broker_id) for unit in units
            ]
            moved = await self._moves.move_topics(pb.MoveTopicsRequest(moves=moves), remaining_ms)
            stuck = [answer.message for answer in moved.answers if answer.retryable]
        else:
            request = pb.UnloadTopicsRequest(topics=units)
            ended = await self._moves.unload_topics(request, remaining_ms)
            stuck = [outcome.message for outcome in ended.outcomes if outcome.failed]
        if stuck:
            raise DeadlineExceeded(f"{len(stuck)} topics may not be unloaded: {stuck[0]}")


def _units(item: Item) -> list[str]:
    partitions = item.topic.partitions
    if not partitions:
        return [item.name]
    return [f"{item.name}{PARTITION_SUFFIX}{number}" for number in range(partitions)]
