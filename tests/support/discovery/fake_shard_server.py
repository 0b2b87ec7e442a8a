"""A shard node made of dictionaries: ``Exchange`` and ``Watch`` over real gRPC.

One server may lead several shards. Tests change the dictionaries, publish deltas, put a hook
before the answers, or stop the server to play its death.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from nextgen.client.transport.member_gate import MemberGate
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, NotLeader
from nextgen.kernel.governance.auto_creation import auto_creation
from nextgen.kernel.limits.cluster import COMMAND_ID_BYTES
from nextgen.kernel.routing.names import parse_topic
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2_grpc
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer, Namespace, Topic

Hook = Callable[[pb.ShardRequest], Awaitable[pb.ShardResponse | None]]

TTL_MS = 60_000
"""Of leased watches: nothing runs out because this machine stood still for a while."""

WAIT_S = 30
"""For requests to arrive. Only a failing test waits that long."""


def _asks_position_only(request: pb.ShardRequest) -> bool:
    """Return whether this requests a shard's position, which most tests ignore."""
    return request.HasField("get") and not request.get.names


class FakeShard:
    """State of one shard: what its leader would know."""

    def __init__(self, shard_id: int) -> None:
        self.shard_id = shard_id
        self.position = 10
        self.assignments: dict[str, LookupAnswer] = {}
        self.items: dict[str, Item] = {}
        self.outcomes: dict[bytes, pb.CommandResult] = {}
        self.executed: list[pb.Command] = []
        self.looked_up: list[str] = []
        self.deltas: list[Event] = []
        self.watchers: dict[str, asyncio.Queue[pb.WatchShardUpdate | None]] = {}
        self.acked: dict[str, int] = {}
        self.asked_at_ms: dict[str, int] = {}
        self.confirms_nothing = False
        """Set: its leader has been deposed without knowing it, and continues to send updates."""
        self.log_start = 0
        """Watchers that resume before it are reset."""
        self.listeners = ""
        """What stands behind the brokers' URL: see ``service_urls``."""

    def assign(self, topic: str, broker_id: str, session_id: str, *, epoch: int = 0) -> None:
        """Assign ``topic`` and tell the watchers."""
        before = self.assignments.get(topic)
        self.position += 1
        answer = LookupAnswer(
            topic=topic,
            broker_id=broker_id,
            broker_url=f"pulsar://{broker_id}.example:6650{self.listeners}",
            broker_grpc=f"{broker_id}.example:7000",
            epoch=epoch or (before.epoch + 1 if before is not None else 1),
            session_id=session_id,
            topic_id=f"{self.shard_id:04x}00000000000000000000",
            shard_id=self.shard_id,
            position=self.position,
        )
        self.assignments[topic] = answer
        self.publish(
            Event(
                position=self.position,
                topic_assigned=TopicAssigned(
                    topic_id=answer.topic_id,
                    name=topic,
                    epoch=answer.epoch,
                    broker_id=broker_id,
                    session_id=session_id,
                ),
            )
        )

    def publish(self, *deltas: Event) -> None:
        self.deltas += deltas
        update = pb.WatchShardUpdate(position=self.position, events=deltas)
        for queue in self.watchers.values():
            queue.put_nowait(update)


class FakeShardServer(shard_service_pb2_grpc.ShardServiceServicer):
    """Serves the shards it was given on a loopback port."""

    def __init__(self, *shard_ids: int, update_ms: int = 100, ttl_ms: int = TTL_MS) -> None:
        self.shards = {shard_id: FakeShard(shard_id) for shard_id in shard_ids}
        self.leads = set(shard_ids)
        self.gate = MemberGate(None)
        self.leader_hint: str | None = None
        self.hook: Hook | None = None
        self.requests: list[pb.ShardRequest] = []
        self.requests_per_message: list[int] = []
        self.keeps_requests = True
        self.is_silent = False
        self.takes_batches = False
        """Unset: as of the release that knows no messages of several requests."""
        self.uses_topics = True
        """Unset: the server refuses ``UseTopics``, as a shard node of the release before does."""
        self.port = 0
        self._update_ms = update_ms
        self._ttl_ms = ttl_ms
        self._server: GrpcServer | None = None
        self._arrived = asyncio.Event()

    async def wait_requests(self, count: int) -> None:
        """Return once ``count`` requests have arrived in all."""
        async with timeout(WAIT_S):
            while len(self.requests) < count:
                self._arrived.clear()
                await self._arrived.wait()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> str:
        self._server = new_server([], interceptors=[self.gate])
        shard_service_pb2_grpc.add_ShardServiceServicer_to_server(self, self._server.server)
        self.port = await self._server.start("127.0.0.1", port, "a test")
        return self.endpoint

    async def stop(self) -> None:
        """Die: every stream breaks at once."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_ms=0)

    async def Exchange(
        self, request_iterator: AsyncIterator[pb.ShardRequest], context: Any
    ) -> None:
        tasks: set[asyncio.Task[None]] = set()
        lock = asyncio.Lock()

        async def answer(request: pb.ShardRequest) -> None:
            response = await self._answer(request)
            async with lock:
                if request.HasField("assign") and not response.HasField("error"):
                    more = pb.ShardResponse(request_id=request.request_id, more=True)
                    await context.write(more)
                await context.write(response)

        try:
            async for message in request_iterator:
                for request in self._requests_of(message):
                    if self.keeps_requests and not _asks_position_only(request):
                        self.requests.append(request)
                        self._arrived.set()
                    task = asyncio.create_task(answer(request))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _requests_of(self, message: pb.ShardRequest) -> list[pb.ShardRequest]:
        if not self.takes_batches:
            return [message]
        requests = [pb.ShardRequest.FromString(each) for each in message.batch] or [message]
        self.requests_per_message.append(len(requests))
        return requests

    async def Watch(
        self, request_iterator: AsyncIterator[pb.WatchShardRequest], context: Any
    ) -> None:
        """A leased watch of assignments, and progress for whatever else there is."""
        opening = (await anext(request_iterator)).open
        if opening.shard_id not in self.leads:
            detail = to_detail(NotLeader(opening.shard_id, self.leader_hint))
            await context.write(pb.WatchShardUpdate(error=detail))
            return
        shard = self.shards[opening.shard_id]
        queue: asyncio.Queue[pb.WatchShardUpdate | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read_watches(shard, opening, request_iterator, queue))
        watched = False
        try:
            while True:
                try:
                    async with timeout(self._update_ms / 1_000):
                        update = await queue.get()
                except TimeoutError:
                    update = pb.WatchShardUpdate(position=shard.position)
                if update is None:
                    return
                if self.is_silent:
                    continue
                watched = watched or bool(update.ttl_ms)
                if watched:
                    update.confirmed_at_ms = shard.asked_at_ms.get(opening.subscriber_id, 0)
                # The leased watch is the first that a discovery node adds; its id is 1.
                update.watch_id = int(watched)
                await context.write(update)
        finally:
            reading.cancel()
            if shard.watchers.get(opening.subscriber_id) is queue:
                del shard.watchers[opening.subscriber_id]

    async def _read_watches(
        self,
        shard: FakeShard,
        opening: pb.WatchOpen,
        requests: AsyncIterator[pb.WatchShardRequest],
        queue: asyncio.Queue[pb.WatchShardUpdate | None],
    ) -> None:
        async for request in requests:
            if request.add.leased:
                assert request.add.watch_id == 1, "the leased watch is the first"
                position = request.add.from_position
                update = self._first_update(shard, position)
                update.reset = update.reset or not position
                queue.put_nowait(update)
                shard.watchers[opening.subscriber_id] = queue
            if request.HasField("renew"):
                shard.acked[opening.subscriber_id] = request.renew.acked_position
                if not shard.confirms_nothing:
                    shard.asked_at_ms[opening.subscriber_id] = request.renew.asked_at_ms

    def _first_update(self, shard: FakeShard, from_position: int) -> pb.WatchShardUpdate:
        update = pb.WatchShardUpdate(position=shard.position, ttl_ms=self._ttl_ms)
        if from_position and from_position < shard.log_start:
            update.reset = True
        else:
            update.events.extend(
                delta for delta in shard.deltas if 0 < from_position < delta.position
            )
        return update

    async def _answer(self, request: pb.ShardRequest) -> pb.ShardResponse:
        try:
            response = await self.hook(request) if self.hook is not None else None
            if response is None:
                response = self._answer_from_dictionaries(request)
        except MetadataError as error:
            response = pb.ShardResponse(error=to_detail(error))
        response.request_id = request.request_id
        response.takes_batches = self.takes_batches
        return response

    def _answer_from_dictionaries(self, request: pb.ShardRequest) -> pb.ShardResponse:
        if request.shard_id not in self.leads:
            raise NotLeader(request.shard_id, self.leader_hint)
        shard = self.shards[request.shard_id]
        response = pb.ShardResponse(position=shard.position)
        if request.HasField("lookup"):
            shard.looked_up += request.lookup.topics
            response.lookup.answers.extend(
                _looked_up(shard, name) for name in request.lookup.topics
            )
        elif request.HasField("execute"):
            response.execute.results.extend(
                _executed(shard, command) for command in request.execute.commands
            )
            response.position = shard.position
        elif request.HasField("use_topics"):
            if not self.uses_topics:
                raise InvalidRequest("a shard does not know requests of this kind (None)")
            names = request.use_topics.names
            response.use_topics.topics.extend([self._used(shard, name) for name in names])
            response.position = shard.position
        elif request.HasField("get"):
            response.get.items.extend(
                shard.items.get(name.name, Item(kind=name.kind, name=name.name))
                for name in request.get.names
            )
        elif request.HasField("list"):
            _list(shard, request.list, response.list)
        elif request.HasField("move"):
            response.move.answers.extend(_moved(shard, move) for move in request.move.moves)
        elif request.HasField("assign"):
            response.assign.synced = True
        else:
            raise NotLeader(request.shard_id)
        return response

    def _used(self, shard: FakeShard, name: str) -> pb.TopicOutcome:
        """Use a topic; an absent one is created by the properties of its namespace."""
        namespace = parse_topic(name).namespace_text
        homes = [each for each in self.shards.values() if namespace in each.items]
        if name in shard.items:
            partitions = shard.items[name].topic.partitions
            return pb.TopicOutcome(rejection_code="ALREADY_EXISTS", partitions=partitions)
        if not homes:
            absent = f"namespace {namespace} does not exist"
            return pb.TopicOutcome(rejection_code="PARENT_NOT_FOUND", message=absent)
        rule = auto_creation(homes[0].items[namespace].namespace.properties)
        if not rule.is_allowed:
            return pb.TopicOutcome(rejection_code="NOT_FOUND", message="its policy forbids it")
        spec = pb.TopicSpec(name=name, partitions=rule.partitions)
        body = pb.CreateTopics(topics=[spec])
        command_id = secrets.token_bytes(COMMAND_ID_BYTES)
        _executed(shard, pb.Command(command_id=command_id, create_topics=body))
        return pb.TopicOutcome(topic_id=f"id-of-{name}", partitions=rule.partitions)


def _looked_up(shard: FakeShard, name: str) -> LookupAnswer:
    answer = shard.assignments.get(name)
    if answer is None:
        return LookupAnswer(
            topic=name,
            rejection_code="NOT_FOUND",
            message="there is no such topic",
            shard_id=shard.shard_id,
            position=shard.position,
        )
    current = LookupAnswer()
    current.CopyFrom(answer)
    current.position = shard.position
    return current


def _moved(shard: FakeShard, move: pb.TopicMove) -> LookupAnswer:
    if move.topic not in shard.assignments:
        return LookupAnswer(topic=move.topic, rejection_code="NOT_FOUND", message="not assigned")
    shard.assign(move.topic, move.target_broker_id, f"session-of-{move.target_broker_id}")
    return shard.assignments[move.topic]


def _executed(shard: FakeShard, command: pb.Command) -> pb.CommandResult:
    known = shard.outcomes.get(command.command_id)
    if known is not None:
        return known
    shard.executed.append(command)
    shard.position += 1
    result = pb.CommandResult(position=shard.position, id="id-1", version=1)
    body = command.WhichOneof("body")
    if body == "create_topics":
        for spec in command.create_topics.topics:
            topic = Topic(topic_id=f"id-of-{spec.name}", name=spec.name, partitions=spec.partitions)
            shard.items[spec.name] = Item(kind=3, name=spec.name, topic=topic)  # type: ignore[arg-type]
            result.topics.add(topic_id=topic.topic_id)
    elif body == "create_tenant":
        name = command.create_tenant.name
        if name in shard.items:
            result = pb.CommandResult(
                rejection_code="ALREADY_EXISTS", message=f"tenant {name} exists", position=1
            )
        else:
            item = Item(kind=1, name=name)  # type: ignore[arg-type]
            item.tenant.name = name
            item.tenant.properties.update(command.create_tenant.properties)
            item.tenant.version = 1
            shard.items[name] = item
    elif body == "create_namespace":
        name = command.create_namespace.name
        namespace = Namespace(name=name, properties=command.create_namespace.properties, version=1)
        shard.items[name] = Item(kind=2, name=name, namespace=namespace)  # type: ignore[arg-type]
    shard.outcomes[command.command_id] = result
    return result


def _list(shard: FakeShard, request: pb.ListRequest, response: pb.ListResponse) -> None:
    items = [item for _, item in sorted(shard.items.items()) if _is_listed(item, request)]
    if request.count_only:
        units = sum(item.topic.partitions or 1 for item in items)
        response.counted.objects, response.counted.units = len(items), units
        response.counted.position = shard.position
        return
    behind = [item for item in items if item.name > request.after]
    limit = request.limit or 100
    if request.names_only:
        response.names.extend(item.name for item in behind[:limit])
        response.partitions.extend(item.topic.partitions for item in behind[:limit])
    else:
        response.items.extend(behind[:limit])
    response.more_items = len(behind) > limit


def _is_listed(item: Item, request: pb.ListRequest) -> bool:
    if item.kind != request.kind:
        return False
    beginning = f"{request.parent}/{request.prefix}" if request.parent else request.prefix
    return item.name.partition("://")[2 if "://" in item.name else 0].startswith(beginning)
