"""Backups and restores, on a shard's leader: where the shard is, and the objects of a backup.

    begun, in an empty shard ──▶ tenants ──▶ namespaces ──▶ topics ──▶ sources of shadows
                                                                  ──▶ layouts ──▶ ended

While a restore is under way no other command changes the inventories (``check_not_restoring``). A
repeated request finds its objects existing, so no outcome is recorded for it (ADR 0092).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from nextgen.kernel.errors import InvalidRequest, Refused, StaleShardMap
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.limits.bulk import RESTORE_ITEMS_BYTES_MAX, RESTORE_ITEMS_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id
from nextgen.kernel.routing.names import InvalidName, parse_namespace, parse_tenant, parse_topic
from nextgen.kernel.routing.slots import slots_digest
from nextgen.replication.ports import Commit
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
)
from protos.nextgen.v1.shard_service_pb2 import (
    CutResponse,
    MarkRestoreRequest,
    RestoreRequest,
    RestoreResponse,
)
from shards.domain import restore, shard
from shards.domain.parent_gate import ParentKind, gate_key
from shards.domain.scalable import restore as scalable_restore
from shards.domain.shard import MarkRestore, RestorePhase
from shards.domain.states import StateKind
from shards.inventory.bulk_turns import BulkTurns
from shards.inventory.renames.pointers import pointed
from shards.inventory.shadows.restoration import RestoredSources
from shards.inventory.topic_bounds import TopicBounds
from shards.state.shard_state import ShardState
from shards.state.topic_names import home_slot_of
from shards.wire.event import DomainEvent
from shards.wire.inventory import namespace_state, tenant_state, topic_state
from shards.wire.scalable import scalable_topic_state

_INVENTORIES = (StateKind.TENANT, StateKind.NAMESPACE, StateKind.TOPIC)


class Restoration:
    """Restores one shard, for one term."""

    def __init__(self, state: ShardState, turns: BulkTurns, bounds: TopicBounds | None) -> None:
        self._state = state
        self._turns = turns
        self._bounds = bounds

    async def cut(self) -> CutResponse:
        """Return where the shard is. Linearizable.

        Raises:
            NotLeader: Leadership moved.
        """
        await self._state.proposer.confirm()
        own = self._state.reads.load_shard()
        tenants, namespaces, topics = map(self._state.reads.total, _INVENTORIES)
        return CutResponse(
            position=self._state.position,
            least_epoch=self._state.least_epoch,
            restore_id="" if own is None else own.restore_id,
            restore_phase="" if own is None else own.restore_phase,
            tenants=tenants,
            namespaces=namespaces,
            topics=topics,
            scalable_topics=self._state.reads.total(StateKind.SCALABLE_TOPIC),
            slots_digest=slots_digest(() if own is None else own.ranges),
            settled_move_id=0 if own is None else own.settled_move_id,
        )

    async def mark(self, request: MarkRestoreRequest) -> CutResponse:
        """Begin, end or give up a restore.

        Raises:
            Refused: The shard has objects of its own, or another restore is under way.
            InvalidRequest: There is no such phase, or no id.
        """
        try:
            phase = RestorePhase(request.phase)
        except ValueError:
            raise InvalidRequest(f"a restore has no phase {request.phase[:40]!r}") from None
        if not 0 < len(request.restore_id) <= 64:
            raise InvalidRequest("a restore has an id of 1 to 64 characters")
        async with self._turns.turn():
            objects = sum(map(self._state.reads.total, _INVENTORIES))
            command = MarkRestore(request.restore_id, phase, objects, request.least_epoch)
            decision = shard.decide(self._state.reads.load_shard(), command)
            if isinstance(decision, Rejected):
                raise Refused(decision.code, decision.message)
            if decision.events:
                await asyncio.shield(self._state.proposer.propose(decision.events))
        return await self.cut()

    async def restore(self, request: RestoreRequest) -> RestoreResponse:
        """Create those objects of ``request`` that are missing; return once they are committed.

        Raises:
            InvalidRequest, StaleShardMap, Overloaded, NotLeader: Nothing was created.
            Refused: No such restore is under way, or an object exists that is not of the backup.
                Nothing was created.
            ProposalLost: The objects may have been created. The request may be repeated.
        """
        batch: _Batch | RestoredSources
        if request.shadow_sources and not request.items:
            batch = RestoredSources(self._state, request.shadow_sources)
        else:
            batch = _Batch(self._state, request.items)
        async with self._turns.counted():
            async with self._turns.turn():
                commits = self._propose(request.restore_id, batch)
            if not commits:
                await self._state.proposer.confirm()
            for commit in commits:
                await asyncio.shield(commit)
        return RestoreResponse(created=batch.created, existing=batch.size - batch.created)

    def _propose(
        self, restore_id: str, batch: _Batch | RestoredSources
    ) -> list[asyncio.Future[Commit]]:
        """Decide and propose: no await in between."""
        own = self._state.reads.load_shard()
        if own is None or not own.is_restoring or own.restore_id != restore_id:
            raise Refused(
                "NOT_ALLOWED",
                f"shard {self._state.shard_id}: no restore of {restore_id[:64]!r} is under way",
            )
        batch.decide(own.least_epoch)
        # Topics alone in their record are folded in half the time (``projections.births``).
        commits = [
            self._state.proposer.propose(events, time_ms=batch.time_ms, keeps_states=False)
            for events in (batch.others, batch.births)
            if events
        ]
        for commit in commits:
            self._turns.note(commit)
        if self._bounds is not None:
            for namespace, count in batch.added.items():
                self._bounds.note(namespace, count)
        return commits


class _Batch:
    """The objects of one request, of one kind, and the events that create them."""

    def __init__(self, state: ShardState, items: Sequence[Item]) -> None:
        self.time_ms = state.now_ms()
        self.size = sum(not item.HasField("pointer") for item in items)
        self.created = 0
        self.births: list[DomainEvent] = []
        """Topics without properties and policies, each by one event."""
        self.others: list[DomainEvent] = []
        self.added: Counter[str] = Counter()
        self._state = state
        self._items = items
        self._owned = state.slots.owned()
        kinds = {item.kind for item in items}
        if not 0 < len(items) <= RESTORE_ITEMS_MAX or len(kinds) != 1:
            raise InvalidRequest(
                f"{len(items)} objects of {len(kinds)} kinds to restore, 1 to {RESTORE_ITEMS_MAX} "
                "of one kind are allowed"
            )
        size_bytes = sum([item.ByteSize() for item in items])
        if size_bytes > RESTORE_ITEMS_BYTES_MAX:
            raise InvalidRequest(
                f"objects of {size_bytes} bytes to restore, at most {RESTORE_ITEMS_BYTES_MAX}"
            )
        self._check_order()
        self._kind = kinds.pop()
        if self._kind not in (KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC, KIND_SCALABLE_TOPIC):
            raise InvalidRequest(f"objects of kind {self._kind} are not restored")

    def _check_order(self) -> None:
        before = ""
        for item in self._items:
            value = item.WhichOneof("value")
            if value == "pointer":
                name = item.name
            else:
                name = "" if value is None else getattr(getattr(item, value), "name", "")
            if name != item.name or name <= before:
                raise InvalidRequest(
                    f"names must ascend and be those of the objects, {item.name[:200]!r} is behind "
                    f"{before[:200]!r}"
                )
            before = name

    def decide(self, least_epoch: int) -> None:
        """Decide all of them, for a shard whose epochs begin at ``least_epoch``.

        Raises:
            Refused, InvalidRequest, StaleShardMap: One is not possible. None is proposed.
        """
        try:
            if self._kind == KIND_TENANT:
                self._decide_tenants()
            elif self._kind == KIND_NAMESPACE:
                self._decide_namespaces()
            elif self._kind == KIND_TOPIC:
                self._decide_topics()
            else:
                self._decide_layouts(least_epoch)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error

    def _decide_tenants(self) -> None:
        reads = self._state.reads
        for item in self._items:
            wanted = tenant_state(item.tenant)
            self._check(parse_tenant(wanted.name), wanted.name, slot_of(wanted.name))
            self._take(restore.restore_tenant(reads.load_tenant(wanted.name), wanted))

    def _decide_namespaces(self) -> None:
        reads = self._state.reads
        opened: set[str] = set()
        for item in self._items:
            wanted = namespace_state(item.namespace)
            name = parse_namespace(wanted.name)
            self._check(name.text, wanted.name, slot_of(name.text))
            decision = restore.restore_namespace(reads.load_namespace(wanted.name), wanted)
            self._open(opened, ParentKind.TENANT, name.tenant, wanted.tenant_id)
            self._take(decision)

    def _decide_topics(self) -> None:
        state = self._state
        # What exists is loaded, what is new is not kept: see ``StateScans``.
        existing = state.scans.existing_topics([item.name for item in self._items])
        opened: set[str] = set()
        for item in self._items:
            if item.HasField("pointer"):
                self._point(item)
                continue
            wanted = topic_state(item.topic)
            name = parse_topic(wanted.name)
            home, named = home_slot_of(wanted.topic_id, name), slot_of(name.routing_key)
            self._check(name.base_text, wanted.name, home)
            if home != named and self._owned[named]:
                self.others.extend(pointed(state, wanted.name, wanted.topic_id))
            before = state.reads.load_topic(wanted.name) if wanted.name in existing else None
            decision = restore.restore_topic(before, wanted, name, self.time_ms)
            namespace = name.namespace_text
            self._open(opened, ParentKind.NAMESPACE, namespace, wanted.namespace_id)
            is_plain = not (wanted.properties or wanted.policies_version)
            if self._take(decision, self.births if is_plain else self.others):
                self.added[namespace] += 1

    def _point(self, item: Item) -> None:
        """Have the name of a renamed topic lead to its home."""
        name = parse_topic(item.name)
        self._check(name.base_text, item.name, slot_of(name.routing_key))
        if not is_id(item.pointer.topic_id):
            raise InvalidRequest(f"the pointer of {item.name[:200]} has no topic's id")
        self.others.extend(pointed(self._state, item.name, item.pointer.topic_id))

    def _decide_layouts(self, least_epoch: int) -> None:
        reads = self._state.reads
        for item in self._items:
            name = parse_topic(item.name)
            self._check(name.base_text, item.name, slot_of(name.routing_key))
            try:
                wanted = scalable_topic_state(item.scalable_topic)
            except ValueError as error:
                raise InvalidRequest(f"the layout of {name.text} has a {error}") from error
            topic = reads.load_topic(wanted.name)
            self._take(
                scalable_restore.restore_scalable(
                    reads.load_scalable(wanted.name),
                    wanted,
                    None if topic is None else topic.topic_id,
                    least_epoch,
                    self.time_ms,
                )
            )

    def _check(self, canonical: str, name: str, slot: int) -> None:
        if canonical != name:
            raise InvalidRequest(f"{name[:200]!r} is not as {canonical!r} is spelled out")
        if not self._owned[slot]:
            raise StaleShardMap(
                f"shard {self._state.shard_id} does not have slot {slot}",
                self._state.slots.map_version,
            )

    def _take(self, decision: object, events: list[DomainEvent] | None = None) -> bool:
        if isinstance(decision, Rejected):
            raise Refused(decision.code, decision.message)
        decided = decision.events  # type: ignore[attr-defined]
        (self.others if events is None else events).extend(decided)
        self.created += bool(decided)
        return bool(decided)

    def _open(self, opened: set[str], kind: ParentKind, name: str, parent_id: str) -> None:
        key = gate_key(kind, name)
        if key not in opened:
            opened.add(key)
            gate = self._state.reads.load_gate(kind, name)
            self.others.extend(restore.open_gate(gate, kind, name, parent_id))
