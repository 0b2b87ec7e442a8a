"""One connection with all that lives on it: producers, consumers, watches, registrations.

A command for an id that is not (or no longer) known is dropped: it may have crossed its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from nextgen.client.st.errors import ConnectionFailed, TimedOut
from nextgen.client.st.wire import update_in
from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, Overloaded
from nextgen.kernel.limits.pulsar import PULSAR_WRITE_PAUSE_BYTES
from nextgen.pulsar.client import PulsarClientConnection, Push
from nextgen.pulsar.frames import RawFrame, encode_command
from protos.pulsar import PulsarApi_pb2 as pulsar

OWN_SERVER = "Pulsar NextGen"
STOCK_SERVER = "Pulsar Server"

_PING = encode_command(pulsar.BaseCommand(type=pulsar.BaseCommand.PING, ping=pulsar.CommandPing()))


class Receiver(Protocol):
    """What lives on a link."""

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        """A command came for it."""

    def link_lost(self, link: Link) -> None:
        """The connection has ended. Nothing comes from it any more."""


class Sender(Receiver, Protocol):
    """A producer."""

    def resumed(self, link: Link) -> None:
        """The server keeps up again with what is sent."""


class UpdateReceiver(Receiver, Protocol):
    """A watch of a layout."""

    def unreadable(self, session_id: int, reason: str) -> None:
        """An update of a layout came that cannot be read."""


class Link(PulsarClientConnection):
    """Made by ``LinkPool``. The dictionaries have what lives on it, by the ids on the wire."""

    def __init__(self, on_push: Push) -> None:
        super().__init__(on_push)
        self._on_push = self._pushed
        self.producers: dict[int, Sender] = {}
        self.consumers: dict[int, Receiver] = {}
        self.layouts: dict[int, UpdateReceiver] = {}
        self.registrations: dict[int, Receiver] = {}
        self.topic_watches: dict[int, Receiver] = {}
        self.token: Callable[[], str | None] | None = None
        """Makes the proof of who the client is, if it has any."""
        self._last_id = 0
        self._is_paused = False
        self._has_heard = True
        self._keep_alive: asyncio.TimerHandle | None = None
        self.closed.add_done_callback(self._lost)

    def __repr__(self) -> str:
        return (
            f"<Link {len(self.producers)} producers, {len(self.consumers)} consumers, "
            f"{len(self.layouts)} layouts>"
        )

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def has_scalable_topics(self) -> bool:
        return self.server.feature_flags.supports_scalable_topics

    @property
    def can_leave_groups(self) -> bool:
        """Whether the server knows SCALABLE_TOPIC_UNSUBSCRIBE, which has no feature flag.

        Servers before it would close the connection. It came with the release of Pulsar 5.0.0.
        """
        version = self.server.server_version
        if version.startswith(OWN_SERVER):
            return True
        number, _, milestone = version.removeprefix(STOCK_SERVER).strip().partition("-")
        major = number.partition(".")[0]
        return not milestone and major.isdigit() and int(major) >= 5

    @property
    def message_bytes_max(self) -> int:
        return self.server.max_message_size or 5 * 1024 * 1024

    @property
    def is_writable(self) -> bool:
        """Whether the server keeps up with what is sent."""
        return not self._is_paused and self._transport is not None

    def next_id(self) -> int:
        """Return an id that nothing else on this connection has or had."""
        self._last_id += 1
        return self._last_id

    def watch_silence(self, keep_alive_ms: int) -> None:
        """Send PING in this interval from here on, and close when nothing came in one."""
        if not self._has_heard:
            self.abort()
            return
        self._has_heard = False
        try:
            self.send(_PING)
        except ConnectionLost:
            return
        self._keep_alive = asyncio.get_running_loop().call_later(
            keep_alive_ms / 1_000, self.watch_silence, keep_alive_ms
        )

    async def ask(self, command: pulsar.BaseCommand, timeout_ms: int | None) -> pulsar.BaseCommand:
        """Do as ``request``, with the errors of this client. None: as long as the connection is
        there.

        Raises:
            ConnectionFailed: There is no connection, or it broke.
            TimedOut: No answer in time.
        """
        try:
            return await self.request(command, timeout_ms=timeout_ms)
        except (ConnectionLost, Overloaded) as error:
            raise ConnectionFailed(str(error)) from error
        except DeadlineExceeded as error:
            raise TimedOut(str(error)) from error

    def waits_for(self, request_id: int) -> bool:
        """Whether the answer to a request has not come."""
        return request_id in self._waiting

    def tell(self, command: pulsar.BaseCommand) -> None:
        """Send a command that has no answer, if the connection is still there."""
        if self.is_open:
            self.send_command(command)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=PULSAR_WRITE_PAUSE_BYTES)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        for producer in list(self.producers.values()):
            producer.resumed(self)

    def data_received(self, data: bytes) -> None:
        self._has_heard = True
        super().data_received(data)

    def unreadable(self, frame: RawFrame) -> bool:
        found = update_in(frame.command)
        if found is not None:
            session_id, reason = found
            watch = self.layouts.get(session_id)
            if watch is not None:
                watch.unreadable(session_id, reason)
        # A later release may send what this one does not know.
        return True

    def _received(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        if (
            command.type == pulsar.BaseCommand.PRODUCER_SUCCESS
            and not command.producer_success.producer_ready
        ):
            # It is not its turn yet: the answer comes when it is.
            return
        super()._received(command, payload)

    def _pushed(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        receiver = self._receiver_of(command)
        if receiver is not None:
            receiver.received(self, command, payload)
        elif command.type == pulsar.BaseCommand.AUTH_CHALLENGE and self.token is not None:
            self._prove(self.token)

    def _receiver_of(self, command: pulsar.BaseCommand) -> Receiver | None:
        kind, types = command.type, pulsar.BaseCommand
        if kind == types.MESSAGE:
            return self.consumers.get(command.message.consumer_id)
        if kind == types.SEND_RECEIPT:
            return self.producers.get(command.send_receipt.producer_id)
        if kind == types.SEND_ERROR:
            return self.producers.get(command.send_error.producer_id)
        if kind == types.CLOSE_PRODUCER:
            return self.producers.get(command.close_producer.producer_id)
        if kind == types.CLOSE_CONSUMER:
            return self.consumers.get(command.close_consumer.consumer_id)
        if kind == types.REACHED_END_OF_TOPIC:
            return self.consumers.get(command.reachedEndOfTopic.consumer_id)
        if kind == types.SCALABLE_TOPIC_UPDATE:
            return self.layouts.get(command.scalableTopicUpdate.session_id)
        if kind == types.SCALABLE_TOPIC_ASSIGNMENT_UPDATE:
            return self.registrations.get(command.scalableTopicAssignmentUpdate.consumer_id)
        if kind == types.WATCH_SCALABLE_TOPICS_UPDATE:
            return self.topic_watches.get(command.watchScalableTopicsUpdate.watch_id)
        return None

    def _prove(self, make_token: Callable[[], str | None]) -> None:
        """Answer a challenge: the server wants to know whether the client is still who it was."""
        try:
            token = make_token()
        except ConnectionFailed:
            # The next connection is opened with a token or fails with this error.
            self.abort()
            return
        response = pulsar.CommandAuthResponse(
            client_version="",
            response=pulsar.AuthData(auth_method_name="token", auth_data=token.encode())
            if token
            else None,
            protocol_version=21,
        )
        self.tell(pulsar.BaseCommand(type=pulsar.BaseCommand.AUTH_RESPONSE, authResponse=response))

    def _lost(self, _: asyncio.Future[None]) -> None:
        if self._keep_alive is not None:
            self._keep_alive.cancel()
        receivers = [
            receiver
            for each in (
                self.producers,
                self.consumers,
                self.layouts,
                self.registrations,
                self.topic_watches,
            )
            for receiver in each.values()
        ]
        for receiver in dict.fromkeys(receivers):
            receiver.link_lost(self)
