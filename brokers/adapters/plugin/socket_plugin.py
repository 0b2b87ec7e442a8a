"""Connects to a plug-in by its Unix socket. Both sides refuse a process of another user."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from brokers.adapters.plugin import messages, peer_user
from brokers.domain.holding import Assignment, Release
from brokers.ports.plugin import (
    FromPlugin,
    PluginConnection,
    PluginFault,
    PluginGreeting,
    PluginLost,
)
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.kernel.limits.stream import (
    PLUGIN_LINE_BYTES_MAX,
    PLUGIN_RETRY_MS,
    PLUGIN_SILENCE_MS_MAX,
    PLUGIN_UNSENT_BYTES_MAX,
)
from nextgen.pulsar.metadata_commands import Located
from nextgen.tasks.timeouts import timeout


class SocketPluginDialer:
    """Connects to the plug-in that listens at ``path``."""

    def __init__(self, path: Path, *, node_id: str, cluster_id: str, faults: PluginFaults) -> None:
        self._path = path
        self._hello = messages.encode(
            "hello", protocol=messages.PROTOCOL, sidecar=node_id, cluster=cluster_id
        )
        self._faults = faults

    async def connect(self) -> PluginConnection:
        """See ``PluginDialer.connect``. Each reason to wait is counted, and logged once."""
        while True:
            try:
                connection = await self._attempt()
            except PluginLost as error:
                self._faults.note(error.fault, str(error))
            except TimeoutError:
                self._faults.note(PluginFault.SILENT, f"{self._path}: the plug-in does not greet")
            except OSError as error:
                self._faults.note(
                    PluginFault.UNREACHABLE, f"{self._path}: {error.strerror or error}"
                )
            else:
                return connection
            await asyncio.sleep(PLUGIN_RETRY_MS / 1_000)

    async def _attempt(self) -> PluginConnection:
        # The limit is that of a line without its end.
        reader, writer = await asyncio.open_unix_connection(
            self._path, limit=PLUGIN_LINE_BYTES_MAX - 1
        )
        try:
            self._check_user(writer)
            writer.write(self._hello)
            async with timeout(PLUGIN_SILENCE_MS_MAX / 1_000):
                greeting = messages.greeting_of(await _line(reader))
        except BaseException:
            writer.close()
            raise
        return SocketPlugin(greeting, reader, writer)

    def _check_user(self, writer: asyncio.StreamWriter) -> None:
        """Check that nobody has put a socket of their own in the place of the broker's.

        Raises:
            PluginLost: Somebody has.
        """
        user = peer_user.user_of_peer(writer.get_extra_info("socket"))
        if not peer_user.is_trusted(user):
            raise PluginLost(
                f"{self._path}: a process of user {user} listens there, the broker and its sidecar "
                "run as one user",
                PluginFault.OTHER_USER,
            )


class SocketPlugin:
    """One open connection; see ``PluginConnection``."""

    def __init__(
        self, greeting: PluginGreeting, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._greeting = greeting
        self._reader = reader
        self._writer = writer

    @property
    def greeting(self) -> PluginGreeting:
        return self._greeting

    async def receive(self) -> FromPlugin:
        return messages.decode(await _line(self._reader))

    def session(self, session_id: str, epoch: int, ttl_ms: int) -> None:
        self._send(messages.encode("session", id=session_id, epoch=epoch, ttl_ms=ttl_ms))

    def alive(self) -> None:
        self._send(messages.encode("alive"))

    def prepare(self, assignment: Assignment) -> None:
        self._send(messages.prepared(assignment))

    def assign(self, assignment: Assignment) -> None:
        self._send(messages.assigned(assignment))

    def release(self, release: Release) -> None:
        self._send(messages.released(release))

    def sync(self, number: int) -> None:
        self._send(messages.encode("sync", number=number))

    def pong(self, number: int) -> None:
        self._send(messages.encode("pong", number=number))

    def located(self, number: int, located: Located) -> None:
        self._send(messages.located_at(number, located))

    def refused(self, number: int, code: str, message: str, *, is_final: bool) -> None:
        self._send(
            messages.encode("refused", number=number, code=code, message=message, final=is_final)
        )

    def list_open(self, number: int, namespace: str) -> None:
        self._send(messages.encode("list_open", number=number, namespace=namespace))

    def close_foreign(self, number: int, topics: Sequence[str]) -> None:
        self._send(messages.encode("close_foreign", number=number, topics=list(topics)))

    def close(self) -> None:
        self._writer.transport.abort()

    def _send(self, message: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() > PLUGIN_UNSENT_BYTES_MAX:
            # A step that is left out must not be followed by others: ``receive`` reports the end.
            self._writer.transport.abort()
        self._writer.write(message)


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:
        raise PluginLost(
            f"the plug-in sent a message above {PLUGIN_LINE_BYTES_MAX} bytes", PluginFault.OVERSIZED
        ) from None
    except OSError as error:
        raise PluginLost(f"the connection broke: {error}", PluginFault.CLOSED) from error
