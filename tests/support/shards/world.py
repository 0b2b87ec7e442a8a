"""Shards in one process: real views and state, a fake log each, and parents found by slot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, StaticPool, create_engine

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.slots import SlotTable
from nextgen.replication.ports import AppliedPoint, Entry, GroupId
from nextgen.replication.view.database import driver_of, table_statements
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    LIFE_STATE_DELETING,
)
from shards.adapters.routed import gate_answer
from shards.assignment.parent_policies import served_by
from shards.domain.assignment import Assignment
from shards.domain.parent_gate import ParentKind
from shards.inventory.service import InventoryReader, InventoryService
from shards.inventory.topic_bounds import ServedBy
from shards.ports import GateAnswer, Parent
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.state.shard_state import ShardState
from tests.support.logs.memory_log import MemoryLog

START_MS = 1_700_000_000_000


Delivery = Coroutine[Any, Any, pb.CommandResult]


class Ticks:
    """A clock that moves by one millisecond each time it is read."""

    def __init__(self) -> None:
        self._ticks = itertools.count(START_MS)

    def __call__(self) -> int:
        return next(self._ticks)

    def skip(self, ms: int) -> None:
        """Go ahead by ``ms``."""
        self._ticks = itertools.count(self() + ms)


class Entropy:
    """Bytes that never repeat, and are the same in every run."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = itertools.count(1)

    def __call__(self, size_bytes: int) -> bytes:
        words = [
            self._seed.to_bytes(2, "big") + next(self._count).to_bytes(8, "big")
            for _ in range(size_bytes // 10)
        ]
        return b"".join(words)


class MemoryView:
    """A view without a disk: the real tables and the real fold."""

    def __init__(self) -> None:
        self._connection = create_engine("sqlite://", poolclass=StaticPool).connect()
        for statement in table_statements(METADATA):
            driver_of(self._connection).execute(statement).close()
        self._connection.commit()
        self._applied = AppliedPoint(0, 0, 0)

    def reader(self) -> Connection:
        return self._connection

    def read_transaction(self) -> AbstractContextManager[Connection]:
        raise NotImplementedError("a view in memory belongs to one thread")

    def applied(self) -> AppliedPoint:
        return self._applied

    def apply(self, entries: Sequence[Entry]) -> None:
        fold(self._connection, entries)
        self._connection.commit()
        last = entries[-1]
        self._applied = AppliedPoint(last.index, last.term, last.next_position - 1)

    def make_durable(self) -> AppliedPoint:
        return self._applied

    def write_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("a view in memory has no file")

    def install_snapshot(self, path: Path) -> AppliedPoint:
        raise NotImplementedError("a view in memory has no file")

    def close(self) -> None:
        self._connection.close()

    def dump(self) -> dict[str, list[tuple[object, ...]]]:
        """Return every row of every table, in order."""
        return {
            table.name: sorted(
                tuple(row)
                for row in self._connection.exec_driver_sql(f"SELECT * FROM {table.name}")
            )
            for table in METADATA.sorted_tables
        }


class ShardReplica:
    """One shard: its view, its log, and what its present leader knows."""

    def __init__(self, shard_id: int, table: SlotTable, parents: World) -> None:
        self.shard_id = shard_id
        self.view = MemoryView()
        self.log = MemoryLog(self.view, group_id=GroupId(shard_id))
        self.query = query_of(self.view.reader)
        self.reader = InventoryReader(shard_id, self.log, self.query, self.view.read_transaction)
        self.unassigned: list[Assignment] = []
        self.clock = Ticks()
        self.entropy = Entropy(shard_id)
        self._table = table
        self._parents = parents
        self.state = self._new_state()
        self.service = self._new_service()
        self.state.adopt_first_slots(table.ranges_of(shard_id), table.version)

    def next_term(self, term: int = 0) -> None:
        """Let the leader win another term, or ``term``: state and service start from the log."""
        self.service.close()
        self.state.term.end()
        self.log._term = max(self.log._term, term - 1)
        self.log.become_leader()
        self.state = self._new_state()
        self.service = self._new_service()

    def close(self) -> None:
        self.view.close()

    def _new_state(self) -> ShardState:
        return ShardState(
            self.shard_id,
            self.log.status.term,
            self.log,
            self.query,
            self.clock,
            self.entropy,
            lambda: self.clock() / 1_000,
        )

    def _new_service(self) -> InventoryService:
        return InventoryService(self.state, self._parents, on_unassigned=self.unassigned.extend)


@lru_cache
def table_of(shards: int) -> SlotTable:
    """Return a map in which each of some shards has one range of slots, all of about one size."""
    return SlotTable(1, tuple([1 + slot * shards // SLOT_COUNT for slot in range(SLOT_COUNT)]))


class World:
    """Some shards, and the directory of parents over them. A test may stand in the way.

    ``before_read``, ``after_read``, ``before_close`` and ``before_reopen`` are awaited, if set;
    what they raise is what the caller gets. ``post`` delivers orders to gates.
    """

    def __init__(self, shards: int = 2) -> None:
        self.table = table_of(shards)
        self.before_read: Callable[[str], object] | None = None
        self.after_read: Callable[[str], object] | None = None
        self.before_close: Callable[[int], object] | None = None
        self.before_reopen: Callable[[int], object] | None = None
        self.before_outcomes: Callable[[int], object] | None = None
        self.before_point: Callable[[str], object] | None = None
        self.after_point: Callable[[str], object] | None = None
        self.before_use: Callable[[str], object] | None = None
        self.after_use: Callable[[str], object] | None = None
        self.post: Callable[[Delivery], Delivery] = _deliver
        self.outcomes_asked: list[int] = []
        """The shards that were asked for first outcomes."""
        self.reads: list[str] = []
        self.shards = {
            shard_id: ShardReplica(shard_id, self.table, self) for shard_id in self.table.shard_ids
        }

    def home(self, routing_key: str) -> ShardReplica:
        return self.shards[self.table.shard_for_key(routing_key)]

    def served_by(self, namespace: str) -> ServedBy:
        """Return what a shard that follows a namespace knows of its brokers."""
        state = self.home(namespace).state.reads.load_namespace(namespace)
        return served_by(state)

    def home_of_slot(self, slot: int) -> ShardReplica:
        return self.shards[self.table.shard_of(slot)]

    def home_of_topic(self, name: str) -> ShardReplica:
        return self.home(parse_topic(name).routing_key)

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()

    # As a client ------------------------------------------------------------------------------

    async def run(self, shard: ShardReplica, command: pb.Command) -> pb.CommandResult:
        response = await shard.service.execute(pb.ExecuteRequest(commands=[command]))
        (result,) = response.results
        return result

    async def create_tenant(self, name: str, command_id: bytes = b"") -> pb.CommandResult:
        command = pb.Command(command_id=command_id, create_tenant=pb.CreateTenant(name=name))
        return await self.run(self.home(name), command)

    async def create_namespace(self, name: str, command_id: bytes = b"") -> pb.CommandResult:
        command = pb.Command(command_id=command_id, create_namespace=pb.CreateNamespace(name=name))
        return await self.run(self.home(name), command)

    async def create_topic(
        self, name: str, command_id: bytes = b"", partitions: int = 0
    ) -> pb.CommandResult:
        return await self.run(
            self.home_of_topic(name), create_topics([name], command_id, partitions=partitions)
        )

    async def delete_topic(self, name: str, command_id: bytes = b"") -> pb.CommandResult:
        command = pb.Command(command_id=command_id, delete_topic=pb.DeleteTopic(name=name))
        return await self.run(self.home_of_topic(name), command)

    async def delete_namespace(self, name: str, command_id: bytes = b"") -> pb.CommandResult:
        command = pb.Command(command_id=command_id, delete_namespace=pb.DeleteNamespace(name=name))
        return await self.run(self.home(name), command)

    async def delete_tenant(self, name: str, command_id: bytes = b"") -> pb.CommandResult:
        command = pb.Command(command_id=command_id, delete_tenant=pb.DeleteTenant(name=name))
        return await self.run(self.home(name), command)

    # ParentDirectory --------------------------------------------------------------------------

    def shard_ids(self) -> Sequence[int]:
        return sorted(self.shards)

    async def read_parent(self, kind: ParentKind, name: str) -> Parent | None:
        await _stand_in_the_way(self.before_read, name)
        self.reads.append(name)
        is_tenant = kind is ParentKind.TENANT
        wanted = pb.ObjectName(kind=KIND_TENANT if is_tenant else KIND_NAMESPACE, name=name)
        response = await self.home(name).reader.get(pb.GetRequest(names=[wanted]))
        await _stand_in_the_way(self.after_read, name)
        item = response.items[0]
        if item.HasField("tenant"):
            return Parent(item.tenant.tenant_id, item.tenant.state == LIFE_STATE_DELETING)
        if item.HasField("namespace"):
            return Parent(item.namespace.namespace_id, item.namespace.state == LIFE_STATE_DELETING)
        return None

    async def close_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        await _stand_in_the_way(self.before_close, shard_id)
        order = pb.CloseParentGate(
            parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
        )
        return await self._order(shard_id, pb.Command(close_parent_gate=order))

    async def reopen_gate(
        self, shard_id: int, kind: ParentKind, name: str, parent_id: str, attempt: int
    ) -> GateAnswer:
        await _stand_in_the_way(self.before_reopen, shard_id)
        order = pb.ReopenParentGate(
            parent_kind=kind.value, parent_name=name, parent_id=parent_id, attempt=attempt
        )
        return await self._order(shard_id, pb.Command(reopen_parent_gate=order))

    async def admit_shadow(self, source: str, shard_id: int, partitions: int) -> Parent | Rejected:
        await _stand_in_the_way(self.before_read, source)
        self.reads.append(source)
        order = pb.AdmitShadow(source=source, shard_id=shard_id, partitions=partitions)
        result = await self.post(
            self.run(self.home_of_topic(source), pb.Command(admit_shadow=order))
        )
        await _stand_in_the_way(self.after_read, source)
        return _rejected(result) or Parent(result.id, False)

    async def point_name(
        self, name: str, topic_id: str, *, effective: bool = False
    ) -> Rejected | None:
        await _stand_in_the_way(self.before_point, name)
        order = pb.PointName(name=name, topic_id=topic_id)
        result = await self.post(self.run(self.home_of_topic(name), pb.Command(point_name=order)))
        await _stand_in_the_way(self.after_point, name)
        return _rejected(result)

    async def name_use(self, name: str, topic_id: str) -> pb.GetNameUseResponse:
        await _stand_in_the_way(self.before_use, name)
        home = self.home_of_slot(slot_of_id(topic_id))
        request = pb.GetNameUseRequest(name=name, topic_id=topic_id)
        response = await home.service.renaming.use(request)
        await _stand_in_the_way(self.after_use, name)
        return response

    async def topic_id(self, name: str) -> str:
        wanted = pb.ObjectName(kind=KIND_TOPIC, name=name)
        response = await self.home_of_topic(name).reader.get(pb.GetRequest(names=[wanted]))
        return response.items[0].topic.topic_id

    async def unlist_shadow(self, source: str, shadow: str, shadow_id: str) -> Rejected | None:
        await _stand_in_the_way(self.before_read, source)
        order = pb.UnlistShadow(source=source, shadow=shadow, shadow_id=shadow_id)
        home = self.home_of_topic(source)
        return _rejected(await self.post(self.run(home, pb.Command(unlist_shadow=order))))

    async def grow_shadows(
        self, shard_id: int, source: str, source_id: str, attempt: int, partitions: int
    ) -> GateAnswer:
        await _stand_in_the_way(self.before_close, shard_id)
        order = pb.GrowShadows(
            source=source, source_id=source_id, attempt=attempt, partitions=partitions
        )
        return await self._order(shard_id, pb.Command(grow_shadows=order))

    async def outcomes(
        self, shard_id: int, request: pb.GetOutcomesRequest
    ) -> pb.GetOutcomesResponse:
        await _stand_in_the_way(self.before_outcomes, shard_id)
        self.outcomes_asked.append(shard_id)
        return await self.shards[shard_id].service.first_outcomes(request)

    async def shadows_of(self, shard_id: int, source: str, limit: int) -> Sequence[str]:
        wanted = pb.ListRequest(kind=KIND_TOPIC, shadows_of=source, limit=limit)
        return (await self.shards[shard_id].reader.list(wanted)).names

    async def _order(self, shard_id: int, command: pb.Command) -> GateAnswer:
        return gate_answer(await self.post(self.run(self.shards[shard_id], command)))


def _rejected(result: pb.CommandResult) -> Rejected | None:
    if not result.rejection_code:
        return None
    return Rejected(RejectionCode(result.rejection_code), result.message)


def create_topics(
    names: Sequence[str], command_id: bytes = b"", *, partitions: int = 0
) -> pb.Command:
    specs = [pb.TopicSpec(name=name, partitions=partitions) for name in names]
    return pb.Command(command_id=command_id, create_topics=pb.CreateTopics(topics=specs))


def names_in(world: World, shard_id: int, namespace: str) -> Iterator[str]:
    """Yield topic names of ``namespace`` whose home is the given shard."""
    for number in itertools.count():
        name = f"persistent://{namespace}/topic-{number}"
        if world.home_of_topic(name).shard_id == shard_id:
            yield name


def namespace_at(world: World, shard_id: int, tenant: str) -> str:
    """Return a namespace of ``tenant`` whose home is the given shard."""
    return next(
        name
        for name in (f"{tenant}/ns-{number}" for number in itertools.count())
        if world.table.shard_of(slot_of(name)) == shard_id
    )


@contextmanager
def unreachable(world: World, shard_id: int) -> Iterator[None]:
    """Let no order reach the gates of one shard."""

    def refuse(asked: int) -> None:
        if asked == shard_id:
            raise Unavailable(f"shard {shard_id} cannot be reached")

    world.before_close = world.before_reopen = refuse
    yield
    world.before_close = world.before_reopen = None


async def _deliver(message: Delivery) -> pb.CommandResult:
    return await message


async def _stand_in_the_way(hook: Callable[..., object] | None, argument: object) -> None:
    waiting = hook(argument) if hook is not None else None
    if waiting is not None:
        await waiting  # type: ignore[misc]
