"""Operations on topics that their brokers carry out, and what they rest on in the inventory.

A topic without partitions is one unit, another has one for each partition. An operation on a topic
with partitions goes to all of them, a few at a time. Every operation may be repeated after a
failure: what some units have done already they do not refuse.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Protocol

from discovery.service.admin.inventory import InventoryService
from discovery.service.admin.moves import MoveService
from discovery.service.admin.unit_calls import UnitCalls
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.kernel.limits.rest import REST_CHANGE_ATTEMPTS_MAX
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.inventory_pb2 import Topic
from protos.nextgen.v1.shard_service_pb2 import TopicForm, TopicSpec

PropertiesChange = Callable[[dict[str, str]], Mapping[str, str]]
"""Makes the new properties from the present ones."""


class Owners(Protocol):
    """The brokers of topics: ``TopicOwners``."""

    async def call(self, name: TopicName, request: Any) -> Any: ...

    async def entry(self, name: TopicName, request: Any) -> admin_pb.StoredEntry: ...


class TopicOperations:
    """What operators do to one topic. Every method raises ``MetadataError`` kinds only."""

    def __init__(self, owners: Owners, inventory: InventoryService, moves: MoveService) -> None:
        self._owners = owners
        self._inventory = inventory
        self._moves = moves
        self._calls = UnitCalls()

    # In the inventory ---------------------------------------------------------------------------

    async def create(
        self, name: TopicName, partitions: int, properties: Mapping[str, str], timeout_ms: int
    ) -> None:
        """Create a topic; ``partitions`` 0 means none.

        Raises:
            Refused: As the shard decides: ALREADY_EXISTS, PARENT_NOT_FOUND ...
        """
        spec = TopicSpec(name=name.text, partitions=partitions, properties=properties)
        request = pb.CreateTopicsRequest(topics=[spec])
        (outcome,) = (await self._inventory.create_topics(request, timeout_ms)).topics
        if outcome.rejection_code:
            raise Refused(outcome.rejection_code, outcome.message)

    async def topic(self, name: TopicName, timeout_ms: int) -> Topic:
        """Return the topic that ``name``, perhaps a partition's, belongs to.

        Raises:
            Refused: NOT_FOUND, also if it has no such partition.
        """
        request = pb.GetObjectRequest(name=name.base_text)
        item = (await self._inventory.get_topic(request, timeout_ms)).item
        partition = name.partition
        if not item.HasField("topic") or (
            partition is not None and partition >= item.topic.partitions
        ):
            raise Refused(RejectionCode.NOT_FOUND, f"topic {name.text} does not exist")
        return item.topic

    async def units(self, name: TopicName, timeout_ms: int) -> list[TopicName]:
        """Return the partitions of a topic, ``name`` itself if it has none or is one.

        Raises:
            Refused: NOT_FOUND.
        """
        topic = await self.topic(name, timeout_ms)
        if not topic.partitions or name.partition is not None:
            return [name]
        return [name.of_partition(number) for number in range(topic.partitions)]

    async def change_properties(
        self, name: TopicName, change: PropertiesChange, timeout_ms: int
    ) -> None:
        """Set the properties that ``change`` makes of the present ones.

        Raises:
            Refused: NOT_FOUND; VERSION_MISMATCH: others changed them each time; LIMIT_EXCEEDED.
        """
        for attempt in range(REST_CHANGE_ATTEMPTS_MAX):
            topic = await self.topic(name, timeout_ms)
            request = pb.SetPropertiesRequest(
                name=topic.name,
                properties=change(dict(topic.properties)),
                expected_version=topic.version,
            )
            try:
                await self._inventory.set_topic_properties(request, timeout_ms)
                return
            except Refused as error:
                is_last = attempt == REST_CHANGE_ATTEMPTS_MAX - 1
                if is_last or error.code != RejectionCode.VERSION_MISMATCH:
                    raise

    async def grow(self, name: TopicName, partitions: int, timeout_ms: int) -> None:
        """Give a topic more partitions. Refused as ``InventoryService.update_partitions`` says."""
        request = pb.UpdatePartitionsRequest(name=name.text, partitions=partitions)
        await self._inventory.update_partitions(request, timeout_ms)

    async def complete_partitions(self, name: TopicName, timeout_ms: int) -> None:
        """Give all partitions of a topic the subscriptions that its first one has.

        Raises:
            Refused: NOT_FOUND.
        """
        await self.topic(name, timeout_ms)
        await self._inventory.complete_partitions(name, timeout_ms)

    async def delete(
        self, name: TopicName, form: TopicForm, timeout_ms: int, *, is_forced: bool
    ) -> None:
        """Delete a topic. Refused as ``InventoryService.delete_topic`` says."""
        request = pb.DeleteRequest(name=name.text, force=is_forced)
        await self._inventory.delete_topic(request, timeout_ms, form)

    async def rename(
        self, name: TopicName, new_name: str, grace_ms: int | None, timeout_ms: int
    ) -> None:
        """Give a topic another name. Refused as ``InventoryService.rename_topic`` says."""
        request = pb.RenameTopicRequest(name=name.text, new_name=new_name, grace_ms=grace_ms)
        await self._inventory.rename_topic(request, timeout_ms)

    async def unload(self, name: TopicName, timeout_ms: int) -> None:
        """Take the topic's units from their brokers; an idle one stays so.

        Raises:
            Refused: NOT_FOUND.
            Unavailable: Not all were taken, and those that were do not matter: repeat it.
        """
        units = [unit.text for unit in await self.units(name, timeout_ms)]
        for start in range(0, len(units), MOVES_PER_REQUEST_MAX):
            part = pb.UnloadTopicsRequest(topics=units[start : start + MOVES_PER_REQUEST_MAX])
            for outcome in (await self._moves.unload_topics(part, timeout_ms)).outcomes:
                if outcome.failed:
                    raise Unavailable(f"{outcome.name}: {outcome.message}")

    # At brokers ---------------------------------------------------------------------------------

    async def call(self, name: TopicName, request: Any) -> Any:
        """Send a request of ``TopicAdmin`` to the broker of one unit; see ``TopicOwners.call``."""
        return await self._owners.call(name, request)

    async def entry(self, name: TopicName, request: Any) -> admin_pb.StoredEntry:
        """As ``call``, for requests that are answered with an entry."""
        return await self._owners.entry(name, request)

    async def call_all(
        self,
        units: Sequence[TopicName],
        request_of: Callable[[], Any],
        *,
        done_code: RejectionCode | None = None,
    ) -> dict[TopicName, Any]:
        """Send a request to the broker of each unit, a few at a time: see ``UnitCalls``.

        A unit that refuses with ``done_code`` had it done before: that is an error only if all
        units say so. So a repetition finishes what failed in the middle.

        Raises:
            MetadataError: The worst of what was raised: an indefinite error before a definite one.
        """
        answers: dict[TopicName, Any] = {}
        done_before: list[Refused] = []

        async def ask(unit: TopicName) -> None:
            try:
                answers[unit] = await self._owners.call(unit, request_of())
            except Refused as error:
                if error.code != done_code:
                    raise
                if not done_before:
                    done_before.append(error)

        await self._calls.each(units, ask)
        if not answers and done_before:
            raise done_before[0]
        return {unit: answers[unit] for unit in units if unit in answers}

    def call_in_order(
        self, units: Sequence[TopicName], request_of: Callable[[], Any]
    ) -> AsyncGenerator[tuple[TopicName, Any]]:
        """As ``call_all``, for long answers: yield each unit with its answer, in the order of
        ``units``. Close the generator; it ends at the first failure."""
        return self._calls.in_order(units, lambda unit: self._owners.call(unit, request_of()))
