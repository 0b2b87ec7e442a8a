"""Reads of the three inventories, on any replica of a shard."""

from __future__ import annotations

from collections.abc import Sequence

from nextgen.kernel.errors import InvalidRequest, PositionAhead, StaleShardMap, Unavailable
from nextgen.kernel.limits.cluster import (
    FOLLOWER_READ_WAIT_MS,
    NAMES_PER_GET_MAX,
    PAGE_BYTES_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
)
from nextgen.kernel.limits.listing import (
    FILTERED_PAGE_TOPICS_MAX,
    LIST_PREFIX_BYTES_MAX,
    NAME_IN_PAGE_BYTES_OVERHEAD,
)
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import is_id, slot_of_id
from nextgen.kernel.routing.names import (
    InvalidName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)
from nextgen.kernel.routing.property_filter import (
    EVERY_TOPIC,
    InvalidFilter,
    PropertyFilter,
    property_filter,
)
from nextgen.kernel.routing.slots import slots_digest
from nextgen.replication.ports import ReplicatedLog
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import (
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
)
from protos.nextgen.v1.shard_service_pb2 import (
    CountedObjects,
    GetRequest,
    GetResponse,
    ListRequest,
    ListResponse,
    ObjectName,
)
from shards.domain.namespace import Namespace
from shards.domain.states import State, StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import CREATABLE_DOMAINS, Topic
from shards.inventory.name_counts import NameCount, NameCounts
from shards.projections.foreign import ViewSlots
from shards.projections.reading import (
    NamedCount,
    Range,
    prefix_range,
    read_matching,
    read_names,
    read_page,
    read_shadows,
    topic_ranges,
)
from shards.projections.rows import Query, ReadTransaction, read_states
from shards.projections.slot_refusal import slot_refusal
from shards.wire.inventory import KINDS, item_message


class InventoryReader:
    """Answers from the view: as of a position on any replica, or linearizable on the leader.

    With ``min_position`` 0 an answer reflects every command that was answered before the read
    began; otherwise every event up to that position, at least.

    Raises:
        NotLeader: ``min_position`` is 0 and this replica does not lead.
        Unavailable: This replica did not reach ``min_position`` in ``FOLLOWER_READ_WAIT_MS``.
        StaleShardMap: A name's slot belongs to another shard.
        InvalidRequest: A name, kind or limit is malformed.
    """

    def __init__(
        self,
        shard_id: int,
        log: ReplicatedLog,
        query: Query,
        read_transaction: ReadTransaction,
    ) -> None:
        self._shard_id = shard_id
        self._log = log
        self._query = query
        self._counts = NameCounts(read_transaction)
        self._slots = ViewSlots()

    @property
    def position(self) -> int:
        """The last event position in the view: answers from here on reflect it."""
        return self._log.applied_point.position

    async def get(self, request: GetRequest) -> GetResponse:
        """Return the named objects in order; an absent one has no value."""
        if len(request.names) > NAMES_PER_GET_MAX:
            raise InvalidRequest(
                f"{len(request.names)} names asked for, at most {NAMES_PER_GET_MAX} are allowed"
            )
        keys = [_parse_name(each) for each in request.names]
        await self._wait(request.min_position)
        self._check_slots(keys)
        states: dict[StateKind, dict[str, State | None]] = {}
        for kind in KINDS.values():
            states[kind] = read_states(
                self._query, kind, [key for of_kind, key, _ in keys if of_kind is kind]
            )
        if not self._log.is_leader:
            self._check_absent([key for key, state in states[StateKind.TOPIC].items() if not state])
        items: list[Item] = []
        size_bytes = 0
        for name, (kind, key, _) in zip(request.names, keys, strict=True):
            items.append(item_message(name.kind, name.name, states[kind][key]))
            size_bytes += items[-1].ByteSize()
        if size_bytes > PAGE_BYTES_MAX:
            raise InvalidRequest(f"the answer has {size_bytes} bytes, ask for fewer names")
        return GetResponse(items=items)

    async def list(self, request: ListRequest) -> ListResponse:
        """Return a page of the objects in this shard below a parent, by name; or their number.

        It says which slots the shard had then.

        Raises:
            PositionAhead: This replica leads, a majority confirms it, and ``min_position`` is of no
                event that exists.
        """
        response = await self._list(request)
        if not response.HasField("slots_digest"):
            # Nothing was awaited since the slots were looked at.
            response.slots_digest = self._slots_digest()
        return response

    def _slots_digest(self) -> int:
        own = self._slots.own
        return slots_digest(own.ranges if own is not None else ())

    async def _count(self, kind: StateKind, ranges: Sequence[Range]) -> ListResponse:
        """Count what the shard has with slots that are the same before and behind the count."""
        while True:
            self._slots.look(self._query)
            own, digest = self._slots.own, self._slots_digest()
            count = await self._counts.count(kind, ranges)
            self._slots.look(self._query)
            if self._slots.own is own:
                return ListResponse(counted=_counted(count), slots_digest=digest)

    async def _list(self, request: ListRequest) -> ListResponse:
        if request.limit > PAGE_ITEMS_MAX:
            raise InvalidRequest(
                f"a page of {request.limit} items asked for, at most {PAGE_ITEMS_MAX} are allowed"
            )
        if len(request.prefix.encode()) > LIST_PREFIX_BYTES_MAX:
            raise InvalidRequest(f"a prefix has at most {LIST_PREFIX_BYTES_MAX} bytes")
        properties = _filter_of(request)
        limit = request.limit or PAGE_ITEMS_DEFAULT
        bytes_max = min(request.bytes_max or PAGE_BYTES_MAX, PAGE_BYTES_MAX)
        kind, ranges = (StateKind.TOPIC, ()) if request.shadows_of else _page_ranges(request)
        await self._check_committed(request.min_position)
        await self._wait(request.min_position)
        self._slots.look(self._query)
        foreign = self._slots.foreign
        if request.shadows_of:
            shadows = read_shadows(
                self._query,
                request.shadows_of,
                after=request.after,
                limit=limit + 1,
                foreign=foreign,
            )
            return _names_page(shadows, limit, bytes_max)
        if request.count_only:
            return await self._count(kind, ranges)
        if properties:
            matching, next_after = read_matching(
                self._query,
                ranges,
                properties,
                after=request.after,
                limit=limit,
                scanned_max=FILTERED_PAGE_TOPICS_MAX,
                foreign=foreign,
            )
            return _matching_page(matching, next_after, bytes_max)
        if request.names_only:
            names = read_names(
                self._query, kind, ranges, after=request.after, limit=limit + 1, foreign=foreign
            )
            return _names_page(names, limit, bytes_max)
        states = read_page(
            self._query, kind, ranges, after=request.after, limit=limit + 1, foreign=foreign
        )
        return _page(request.kind, states, limit, bytes_max)

    async def _wait(self, min_position: int) -> None:
        if not min_position:
            await self._log.wait_applied(await self._log.read_index())
            return
        try:
            async with timeout(FOLLOWER_READ_WAIT_MS / 1000):
                await self._log.wait_position(min_position)
        except TimeoutError:
            raise Unavailable(
                f"this replica of shard {self._shard_id} is at position {self.position}, "
                f"{min_position} was requested and not reached in {FOLLOWER_READ_WAIT_MS} ms"
            ) from None

    async def _check_committed(self, position: int) -> None:
        """Raise ``PositionAhead`` if this replica leads and ``position`` is not committed.

        A follower may be behind. A page token may come from another cluster, or be older than the
        backup that this one was restored from: waiting would never end.
        """
        log = self._log
        if log.is_leader and position > log.commit_position:
            await log.read_index()
            if position > log.commit_position:
                raise PositionAhead(position, log.commit_position, is_final=True)

    def _check_slots(self, keys: Sequence[tuple[StateKind, str, str]]) -> None:
        self._slots.look(self._query)
        for kind, key, routing_key in keys:
            slot = slot_of(routing_key)
            if not self._slots.owned[slot] and not self._is_home(kind, key):
                refusal = slot_refusal(self._shard_id, self._slots.own, slot)
                if kind is StateKind.TOPIC:
                    refusal.moved_names[routing_key] = slot
                raise refusal

    def _is_home(self, kind: StateKind, key: str) -> bool:
        """Return whether a topic is in this shard by the slot in its id, whatever its name is."""
        if kind is not StateKind.TOPIC:
            return False
        topic = read_states(self._query, kind, [key])[key]
        return (
            isinstance(topic, Topic)
            and is_id(topic.topic_id)
            and self._slots.owned[slot_of_id(topic.topic_id)] == 1
        )

    def _check_absent(self, names: Sequence[str]) -> None:
        """Raise ``StaleShardMap`` for an absent topic whose name may lead to a renamed one, which
        only the leader finds out."""
        for kind in (StateKind.TOPIC_NAME, StateKind.FORMER_NAME) if names else ():
            for name, state in read_states(self._query, kind, names).items():
                if state is not None:
                    raise StaleShardMap(f"{name} may lead to a renamed topic: ask the leader")


def _parse_name(name: ObjectName) -> tuple[StateKind, str, str]:
    """Return kind, key and routing key of an object."""
    try:
        if name.kind == KIND_TENANT:
            tenant = parse_tenant(name.name)
            return StateKind.TENANT, tenant, tenant
        if name.kind == KIND_NAMESPACE:
            namespace = parse_namespace(name.name).text
            return StateKind.NAMESPACE, namespace, namespace
        if name.kind == KIND_TOPIC:
            topic = parse_topic(name.name)
            # No object is kept under the name of a partition: it is found absent.
            return StateKind.TOPIC, topic.text, topic.routing_key
        if name.kind == KIND_SCALABLE_TOPIC:
            topic = parse_topic(name.name)
            return StateKind.SCALABLE_TOPIC, topic.text, topic.routing_key
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
    raise InvalidRequest(f"kind {name.kind} is none of tenant, namespace, topic, scalable topic")


def _page_ranges(request: ListRequest) -> tuple[StateKind, tuple[Range, ...]]:
    try:
        if request.kind == KIND_TENANT:
            return StateKind.TENANT, (prefix_range(request.prefix),)
        if request.kind == KIND_NAMESPACE:
            tenant = parse_tenant(request.parent)
            return StateKind.NAMESPACE, (prefix_range(f"{tenant}/{request.prefix}"),)
        if request.kind == KIND_TOPIC:
            namespace = parse_namespace(request.parent).text
            if request.domain and request.domain not in CREATABLE_DOMAINS:
                raise InvalidRequest(f"there are no topics in the domain {request.domain!a}")
            return StateKind.TOPIC, topic_ranges(namespace, request.domain, request.prefix)
    except InvalidName as error:
        raise InvalidRequest(str(error)) from error
    raise InvalidRequest(f"kind {request.kind} is none of tenant, namespace, topic")


def _page(kind: Kind, states: Sequence[State], limit: int, bytes_max: int) -> ListResponse:
    """Return the first ``limit`` states as a page, fewer if they have more than ``bytes_max``."""
    items: list[Item] = []
    size_bytes = 0
    for state in states[:limit]:
        assert isinstance(state, Tenant | Namespace | Topic)
        item = item_message(kind, state.name, state)
        size_bytes += item.ByteSize()
        if items and size_bytes > bytes_max:
            break
        items.append(item)
    return ListResponse(items=items, more_items=len(items) < len(states))


def _filter_of(request: ListRequest) -> PropertyFilter:
    """Return the filter of a listing by properties; ``EVERY_TOPIC`` without one.

    Raises:
        InvalidRequest: No topic can match it, or it is not for a page of topics.
    """
    if not request.properties:
        return EVERY_TOPIC
    if request.kind != KIND_TOPIC or request.count_only:
        raise InvalidRequest("properties are for pages of topics")
    try:
        return property_filter(request.properties.items())
    except InvalidFilter as error:
        raise InvalidRequest(str(error)) from error


def _matching_page(names: Sequence[NamedCount], next_after: str, bytes_max: int) -> ListResponse:
    page = _names_page(names, len(names), bytes_max)
    if page.more_items:
        page.next_after = page.names[-1]
    elif next_after:
        page.more_items, page.next_after = True, next_after
    return page


def _names_page(names: Sequence[NamedCount], limit: int, bytes_max: int) -> ListResponse:
    page = names[:limit]
    size_bytes = 0
    for place, (name, _) in enumerate(page):
        size_bytes += len(name.encode()) + NAME_IN_PAGE_BYTES_OVERHEAD
        if place and size_bytes > bytes_max:
            page = page[:place]
            break
    return ListResponse(
        names=[name for name, _ in page],
        partitions=[partitions for _, partitions in page],
        more_items=len(page) < len(names),
    )


def _counted(count: NameCount) -> CountedObjects:
    return CountedObjects(objects=count.names, units=count.units, position=count.position)
