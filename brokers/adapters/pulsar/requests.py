"""The pending requests of one Pulsar client, and their limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from brokers.adapters.pulsar.answers import error_code
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.client_info import ClientInfo
from brokers.service.client_limits.broker_clients import BrokerClients
from brokers.service.client_limits.publish_throttle import PublishThrottle
from brokers.service.topics.open_topics import Topics
from nextgen.kernel.governance.access import ANONYMOUS
from nextgen.kernel.limits.pulsar import (
    CONNECTION_PENDING_BYTES_MAX,
    CONNECTION_REQUESTS_MAX,
    LEDGER_PENDING_ENTRY_BYTES,
    LIVENESS_CHECK_MS,
)
from nextgen.kernel.routing.names import InvalidName
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import RawFrame
from nextgen.pulsar.greeting import Greeting, greeting_with
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.pulsar.scalable_topics.session import ScalableServices
from nextgen.pulsar.topic_lists.session import TopicWatches
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar

_logger = structlog.get_logger(__name__)

_PING = pulsar.BaseCommand(type=pulsar.BaseCommand.PING, ping=pulsar.CommandPing())


@dataclass(slots=True)
class Front:
    """What all connections of a broker share."""

    topics: Topics
    metadata: MetadataCommands
    watches: TopicWatches
    scalable: ScalableServices | None = None
    """None: layouts of scalable topics cannot be watched at this broker."""
    authenticator: Authenticator | None = None
    """Who checks the clients' identities; None: nobody."""
    authorizer: Authorizer | None = None
    """Who decides what clients may do; None: everybody may do everything."""
    clients: BrokerClients = field(default_factory=BrokerClients)
    """Who uses this broker, and its bounds."""
    greeting: Greeting = field(init=False)
    producers: int = 0
    consumers: int = 0
    listings: int = 0
    """Namespaces that are being listed."""

    def __post_init__(self) -> None:
        self.greeting = greeting_with(
            self.watches,
            has_scalable=self.scalable is not None,
            authenticator=self.authenticator,
            authorizer=self.authorizer,
        )

    def listed(self) -> None:
        self.listings -= 1


class ClientRequests(PulsarConnection):
    """Handles a client's requests, each in a task that ends with the connection.

    Reading pauses while too many requests are pending, or too many bytes wait for storage.
    """

    __slots__ = (
        "_alive",
        "_is_held_for_requests",
        "_is_held_for_storage",
        "_pending_bytes",
        "_tasks",
        "_throttles",
        "clock",
        "front",
    )

    def __init__(self, keep_alive: KeepAlive, front: Front) -> None:
        super().__init__(keep_alive, front.greeting)
        self.front = front
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_bytes = 0
        self._is_held_for_storage = False
        self._is_held_for_requests = False
        self._throttles: set[PublishThrottle] | None = None
        self._alive: asyncio.Event | None = None

    @property
    def client(self) -> ClientInfo:
        """The client, for statistics."""
        role = "" if self.principal is ANONYMOUS else self.principal.name
        return ClientInfo(self.peer, self.client_version, role)

    def handle_raw(self, frame: RawFrame) -> bool:
        if self._alive is not None:
            self._alive.set()
            self._alive = None
        return False

    def closed(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        throttles, self._throttles = self._throttles, None
        for throttle in throttles or ():
            throttle.forget(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in a task that is cancelled with the connection."""
        task = start("pulsar_request", work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if len(self._tasks) >= CONNECTION_REQUESTS_MAX and not self._is_held_for_requests:
            self._is_held_for_requests = True
            self.hold_reading()
        return task

    @contextmanager
    def answering(self, request_id: int) -> Iterator[None]:
        """Answer the request with an error if the block refuses it or fails."""
        try:
            yield
        except Refusal as refusal:
            self.refuse(request_id, refusal)
        except InvalidName as error:
            self.refuse(request_id, Refusal(ServerError.INVALID_TOPIC_NAME, str(error)))
        except Exception:
            _logger.exception("a Pulsar request failed", peer=self.peer)
            self.refuse(request_id, Refusal(ServerError.UNKNOWN, "the broker failed"))

    def refuse(self, request_id: int, refusal: Refusal) -> None:
        self.send_error(request_id, error_code(refusal.code), refusal.message)

    def count_pending(self, size_bytes: int) -> None:
        """Count a payload that was passed to storage. Above the limit, reading pauses."""
        self._pending_bytes += size_bytes + LEDGER_PENDING_ENTRY_BYTES
        if self._pending_bytes > CONNECTION_PENDING_BYTES_MAX:
            self.hold_for_storage()

    def count_settled(self, size_bytes: int, *, is_congested: bool) -> None:
        """Subtract a payload that storage has answered."""
        self._pending_bytes -= size_bytes + LEDGER_PENDING_ENTRY_BYTES
        if not self._is_held_for_storage:
            return
        has_room = not is_congested and self._pending_bytes <= CONNECTION_PENDING_BYTES_MAX // 2
        # Other connections may congest storage: without a pending payload of this one, no later
        # event would resume reading.
        if has_room or not self._pending_bytes:
            self._is_held_for_storage = False
            self._release()

    def hold_for_storage(self) -> None:
        """Pause reading until storage has caught up."""
        if not self._is_held_for_storage and self._pending_bytes:
            self._is_held_for_storage = True
            self.hold_reading()

    @property
    def is_throttled(self) -> bool:
        """Whether reading is paused because of a rate."""
        return bool(self._throttles)

    def hold_for_rate(self, throttle: PublishThrottle) -> None:
        """Pause reading until ``throttle`` has room."""
        if self._throttles is None:
            self._throttles = set()
        self._throttles.add(throttle)
        self.hold_reading()

    def release_for_rate(self, throttle: PublishThrottle) -> None:
        """``throttle`` has room: read on, unless something else is waited for."""
        if self._throttles is not None:
            self._throttles.discard(throttle)
            self._throttles = self._throttles or None
        self._release()

    async def is_alive(self) -> bool:
        """Send PING and wait for any command; without one, drop the connection."""
        if not self.is_open:
            return False
        is_held = self._is_held_for_storage or self._is_held_for_requests
        if is_held or self._throttles or self.is_asking:
            return True  # Reading is paused: an answer would not be seen.
        if self._alive is None:
            self._alive = asyncio.Event()
            self.send_command(_PING)
        alive = self._alive
        try:
            async with timeout(LIVENESS_CHECK_MS / 1000):
                await alive.wait()
        except TimeoutError:
            self.abort("does not answer PING, and another producer requests its name")
            return False
        return self.is_open

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_held_for_requests and len(self._tasks) < CONNECTION_REQUESTS_MAX // 2:
            self._is_held_for_requests = False
            self._release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a Pulsar request failed", peer=self.peer, exc_info=error)
            self.close_after_flush()

    def _release(self) -> None:
        if not (self._is_held_for_storage or self._is_held_for_requests or self._throttles):
            self.release_reading()
