"""The one ``ClusterService.Join`` stream of a process to the cluster manager's leader.

    connect ─▶ Hello ─▶ first update ─┬─ error NOT_LEADER ─▶ try the hint, else the next endpoint
                                      └─ full ─▶ on_connected ─▶ updates, heartbeats ─▶ broken ─┐
          ▲──────────────────── 50 to 500 ms, with jitter ◀─────────────────────────────────────┘

While no cluster manager can be reached, the view stays as it is and the node works with it.
Listeners are called on the event loop, in the order in which they were added.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message

from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc, from_detail, raise_for_rpc
from nextgen.kernel.errors import (
    ConnectionLost,
    MetadataError,
    NotLeader,
    RefusesToStart,
    Unauthenticated,
    Unavailable,
    WrongCluster,
)
from nextgen.kernel.limits.cluster import (
    CONNECT_TIMEOUT_MS,
    LINK_OUTBOX_MESSAGES_MAX,
    MANAGER_HEARTBEAT_MS,
    MANAGER_SILENCE_MS_MAX,
)
from nextgen.runtime.security.exclusions import set_excluded
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.tasks.background import cancel_and_wait, keep
from nextgen.tasks.cancellation import cancel_requests
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    Hello,
    LeaderReport,
    LeadershipTransfer,
    LeaseCapacityRequest,
    LeaseCapacityResponse,
    NodeHeartbeat,
    NodeMessage,
)

ChangeListener = Callable[[ClusterView, ClusterUpdate], None]
ConnectedListener = Callable[[], None]
TransferListener = Callable[[LeadershipTransfer], None]

__all__ = ["ChangeListener", "ClusterLink", "ClusterView", "ConnectedListener", "TransferListener"]

_BACKOFF_MS_MIN = 50
_BACKOFF_MS_MAX = 500
_SERVICE = "/nextgen.v1.ClusterService"
_JOIN = f"{_SERVICE}/Join"
Answer = TypeVar("Answer", bound=Message)
_BROKEN = (grpc.RpcError, asyncio.InvalidStateError, DecodeError)
_logger = structlog.get_logger(__name__)


class ClusterLink:
    """Keeps ``view`` true and carries this node's reports. Owned by one event loop.

    ``view`` may be given filled from disk. ``hello`` is kept up to date with the map's version.
    """

    def __init__(
        self,
        manager_endpoints: Sequence[str],
        hello: Hello,
        *,
        view: ClusterView | None = None,
    ) -> None:
        assert manager_endpoints, "a node needs the address of a cluster manager"
        self.view = view or ClusterView()
        self.has_connected_once = False
        self.refusal: RefusesToStart | None = None
        """Why the cluster manager will never accept this node; the process should not go on."""
        self._configured = tuple(manager_endpoints)
        self._refused_by: set[str] = set()
        """Managers that found this process unauthenticated since it was last connected."""
        self._hello = hello
        hello.takes_deltas = True
        self._outbox: asyncio.Queue[NodeMessage] = asyncio.Queue(LINK_OUTBOX_MESSAGES_MAX)
        self._leader: str | None = None
        self._channel: grpc.aio.Channel | None = None
        self._heard_at = 0.0
        self._heartbeats = 0
        self._task: asyncio.Task[None] | None = None
        self._change_listeners: list[ChangeListener] = []
        self._connected_listeners: list[ConnectedListener] = []
        self._transfer_listeners: list[TransferListener] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._connection_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ClusterLink leader={self._leader or 'none'} view={self.view!r}>"

    @property
    def is_connected(self) -> bool:
        """Whether the stream to the cluster manager's leader stands."""
        return self._leader is not None

    @property
    def leader_endpoint(self) -> str | None:
        """host:port of the cluster manager's leader while connected."""
        return self._leader

    def on_change(self, listener: ChangeListener) -> None:
        """Call ``listener(view, update)`` after each update that was merged into the view."""
        self._change_listeners.append(listener)

    def on_connected(self, listener: ConnectedListener) -> None:
        """Call ``listener`` after each (re)connect, when the first full update is merged.

        Messages sent over an earlier connection may be lost: the listener sends them again.
        """
        self._connected_listeners.append(listener)

    def on_transfer(self, listener: TransferListener) -> None:
        """Call ``listener`` with each request to hand leadership over."""
        self._transfer_listeners.append(listener)

    async def start(self) -> None:
        """Start connecting in the background and return at once."""
        assert self._task is None, "the link runs already"
        self._task = keep("cluster_link", self._run)

    async def stop(self) -> None:
        """Close the stream and stop for good. Harmless when not started."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)

    def send(self, message: NodeMessage) -> bool:
        """Queue ``message`` for the cluster manager; return False if it was dropped.

        It is dropped when not connected, and lost when the connection breaks: see
        ``on_connected``.
        """
        if self._leader is None:
            return False
        try:
            self._outbox.put_nowait(message)
        except asyncio.QueueFull:
            return False
        return True

    def learn_leader(self, shard_id: int, term: int, node_id: str, grpc: str = "") -> None:
        """Merge a shard's leader into the view, known here before the cluster manager pushes it.

        Listeners are called and waiters woken as for a push. A node whose address is neither given
        nor known, or a term that is not higher than the known one, changes nothing.
        """
        node = self.view.nodes.get(node_id)
        endpoint = grpc or (node.grpc if node is not None else "")
        if not endpoint or term <= self.view.leader_term(shard_id):
            return
        report = LeaderReport(shard_id=shard_id, term=term, node_id=node_id, grpc=endpoint)
        self._take(ClusterUpdate(leaders=[report]))

    async def lease_capacity(
        self, request: LeaseCapacityRequest, timeout_ms: int
    ) -> LeaseCapacityResponse:
        """Request capacity from the cluster manager's leader. Raises what ``call`` does."""
        return await self.call("LeaseCapacity", request, LeaseCapacityResponse, timeout_ms)

    async def call(
        self, method: str, request: Message, answer: type[Answer], timeout_ms: int
    ) -> Answer:
        """Call a method of the cluster manager's leader and return its answer.

        Raises:
            Unavailable: Not connected; nothing was sent.
            ConnectionLost: The connection broke before the answer came.
            MetadataError: The cluster manager's error, or ``DeadlineExceeded``.
        """
        if self._channel is None or self._leader is None:
            raise Unavailable("not connected to the cluster manager's leader")
        call: Any = self._channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        requests = cancel_requests()
        try:
            response: Answer = await call(request, timeout=timeout_ms / 1_000)
        except grpc.RpcError as error:
            raise_for_rpc(error)
        except asyncio.CancelledError:
            # Closing the channel cancels its calls, not the tasks that wait for them.
            if cancel_requests() > requests:
                raise
            raise ConnectionLost("the connection to the cluster manager was closed") from None
        return response

    async def wait_connected(self) -> None:
        """Return once the stream to the cluster manager's leader stands.

        Raises:
            RefusesToStart: It will never accept this node.
        """
        while not self.is_connected:
            if self.refusal is not None:
                raise self.refusal
            await self._connection_changed.wait()

    async def wait_ready(self) -> None:
        """Return once connected with a shard map known.

        Raises:
            RefusesToStart: The cluster manager will never accept this node.
        """
        await self.wait_connected()
        await self.wait_until(lambda view: view.slot_table is not None)

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        """Wait until ``predicate(view)`` holds; return False when ``timeout_ms`` passed first."""
        if predicate(self.view):
            return True
        with contextlib.suppress(TimeoutError):
            async with timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while not predicate(self.view):
                    await self._next_change()
        return predicate(self.view)

    async def _next_change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _run(self) -> None:
        backoff_ms = _BACKOFF_MS_MIN
        untried: list[str] = []
        hint: str | None = None
        while self.refusal is None:
            if not untried:
                untried = self._endpoints()
            endpoint = hint or untried.pop(0)
            was_connected, hint = await self._attempt(endpoint)
            if was_connected:
                backoff_ms, untried = _BACKOFF_MS_MIN, []
            await asyncio.sleep(backoff_ms * random.uniform(0.5, 1.0) / 1_000)
            if hint is None:
                backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    def _endpoints(self) -> list[str]:
        endpoints = list(dict.fromkeys((*self._configured, *self.view.manager_endpoints)))
        random.shuffle(endpoints)
        return endpoints

    async def _attempt(self, endpoint: str) -> tuple[bool, str | None]:
        """Connect and follow the stream until it breaks. Return whether it was connected, and the
        leader's address."""
        was_connected, hint = False, None
        channel = open_channel(endpoint, NodeRole.CLUSTER_MANAGER)
        try:
            await wait_connected(channel, endpoint)
            await self._converse(channel, endpoint)
        except NotLeader as error:
            was_connected, hint = self._leader is not None, error.leader_hint
        except WrongCluster as error:
            _logger.error("refused by the cluster manager", endpoint=endpoint, error=str(error))
            self.refusal = error
        except Unauthenticated as error:
            self._refused(endpoint, error)
        except (MetadataError, TimeoutError) as error:
            was_connected = self._leader is not None
            if was_connected:
                _logger.info("cluster manager lost", endpoint=endpoint, error=str(error))
        finally:
            self._leader, self._channel = None, None
            self._signal_connection()
            await close_channel(channel)
        return was_connected, hint

    def _refused(self, endpoint: str, error: Unauthenticated) -> None:
        """Note that a manager found this process unauthenticated; give up once all managers did.

        A single manager may itself have the wrong secret. A node that was connected before goes on
        with its view, as it does when no manager can be reached.
        """
        if endpoint not in self._refused_by:
            _logger.error("refused by the cluster manager", endpoint=endpoint, error=str(error))
        self._refused_by.add(endpoint)
        if not self.has_connected_once and self._refused_by.issuperset(self._configured):
            self.refusal = RefusesToStart(f"every cluster manager refuses this process: {error}")

    async def _converse(self, channel: grpc.aio.Channel, endpoint: str) -> None:
        join: Any = channel.stream_stream(
            _JOIN,
            request_serializer=NodeMessage.SerializeToString,
            response_deserializer=ClusterUpdate.FromString,
        )
        call = join()
        try:
            self._hello.shard_map_version = self.view.shard_map_version
            async with timeout(CONNECT_TIMEOUT_MS / 1_000):
                await call.write(NodeMessage(hello=self._hello))
                first = await self._read(call, endpoint)
            self._connected(channel, endpoint, first)
            async with TaskGroup() as tasks:
                tasks.create_task(self._read_updates(call, endpoint))
                tasks.create_task(self._write_messages(call))
                tasks.create_task(self._heartbeat(endpoint))
        except _BROKEN as error:
            raise _translated(error, endpoint) from error
        except BaseExceptionGroup as group:
            raise _translated(group.exceptions[0], endpoint) from group
        finally:
            call.cancel()

    def _connected(self, channel: grpc.aio.Channel, endpoint: str, first: ClusterUpdate) -> None:
        while not self._outbox.empty():
            self._outbox.get_nowait()
        self._leader, self._channel = endpoint, channel
        self._heard_at = asyncio.get_running_loop().time()
        self.has_connected_once = True
        self._refused_by.clear()
        _logger.info("joined the cluster", endpoint=endpoint)
        self._take(first)
        for listener in self._connected_listeners:
            _notify(listener)
        self._signal_connection()

    async def _read(self, call: Any, endpoint: str) -> ClusterUpdate:
        update = await call.read()
        if not isinstance(update, ClusterUpdate):
            # The call's status carries the reason, if there is one.
            code = await call.code()
            raise Unavailable(f"{endpoint} ended the stream ({code.name}: {await call.details()})")
        if update.HasField("error"):
            raise from_detail(update.error)
        return update

    async def _read_updates(self, call: Any, endpoint: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            update = await self._read(call, endpoint)
            self._heard_at = loop.time()
            if self.view.misses_changes(update):
                # The next connection begins with the whole map.
                raise Unavailable(f"{endpoint} sent a change of a map that is not known here")
            self._take(update)

    async def _write_messages(self, call: Any) -> None:
        while True:
            await call.write(await self._outbox.get())

    async def _heartbeat(self, endpoint: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(MANAGER_HEARTBEAT_MS / 1_000)
            if (loop.time() - self._heard_at) * 1_000 > MANAGER_SILENCE_MS_MAX:
                raise Unavailable(f"{endpoint} was silent for {MANAGER_SILENCE_MS_MAX} ms")
            self._heartbeats += 1
            self.send(NodeMessage(heartbeat=NodeHeartbeat(sequence=self._heartbeats)))

    def _take(self, update: ClusterUpdate) -> None:
        if _is_echo(update):
            return
        self.view.apply(update)
        if update.excluded_nodes:
            set_excluded(self.view.excluded_nodes)
        for change_listener in self._change_listeners:
            _notify(change_listener, self.view, update)
        for transfer in update.transfers:
            for transfer_listener in self._transfer_listeners:
                _notify(transfer_listener, transfer)
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _signal_connection(self) -> None:
        self._connection_changed.set()
        self._connection_changed = asyncio.Event()


def _notify(listener: Callable[..., None], *arguments: object) -> None:
    """Call ``listener`` and log what it raises: one faulty listener must not end the stream."""
    try:
        listener(*arguments)
    except Exception:
        _logger.exception("a listener of the cluster link failed", listener=repr(listener))


def _translated(error: BaseException, endpoint: str) -> BaseException:
    if isinstance(error, grpc.RpcError):
        return error_of_rpc(error)
    if isinstance(error, _BROKEN):
        return Unavailable(f"the stream to {endpoint} ended: {error!r}")
    return error


def _is_echo(update: ClusterUpdate) -> bool:
    """Return whether ``update`` only acknowledges a heartbeat."""
    return all(field.name == "heartbeat_sequence" for field, _ in update.ListFields())
