"""Answers metadata commands that the fast path cannot, in bounded numbers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.pulsar import (
    DISCOVERY_COMMANDS_WAITING_MAX,
    DISCOVERY_LISTINGS_MAX,
    DISCOVERY_TENANT_LISTINGS_MAX,
)
from nextgen.pulsar.metadata_commands import MetadataCommands
from nextgen.pulsar.topic_lists.session import Client
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import cancel_and_wait, start
from protos.pulsar.PulsarApi_pb2 import BaseCommand, ServerError

Answer = TypeVar("Answer")


class Asker(Client, Protocol):
    """A connection that sends commands."""

    waiting_commands: int
    """Its pending commands. With too many of them the connection is not read."""

    def command_done(self) -> None:
        """Count one of ``waiting_commands`` as done."""


class CommandDispatcher:
    """Answers metadata commands in tasks of its own. Owned by one event loop.

    A command beyond the limits is refused at once, with a retryable error.
    """

    def __init__(self, commands: MetadataCommands, counters: DiscoveryCounters) -> None:
        self._commands = commands
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._listings: Counter[str] = Counter()
        """Listings under way, by tenant."""

    def __repr__(self) -> str:
        return f"<CommandDispatcher waiting={self._waiting} listings={self._listings.total()}>"

    @property
    def waiting(self) -> int:
        """Pending commands and HTTP requests."""
        return self._waiting

    def handles(self, command_type: int) -> bool:
        """Return whether ``take`` is for commands of this type."""
        return self._commands.handles(command_type)

    def take(self, asker: Asker, command: BaseCommand) -> None:
        """Begin to answer ``command`` to ``asker``."""
        listed = _tenant_listed(command)
        try:
            self._check_room(listed)
        except Overloaded as error:
            self._counters.pulsar_overloads += 1
            answer = self._commands.failure(command, error)
            if command.type == BaseCommand.LOOKUP:
                self._counters.tally.add(0, failed=1)
            asker.send_command(answer)
            return
        asker.waiting_commands += 1
        self._waiting += 1
        if listed is not None:
            self._listings[listed] += 1
        task = start("pulsar_command", self._answer(asker, command))
        self._tasks.add(task)
        # A callback, since a task that is cancelled before it begins runs no code of its own.
        task.add_done_callback(partial(self._done, asker, listed))

    async def answer(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the result of ``work``, for an HTTP request, which is not counted by connection.

        Raises:
            Overloaded: Too many commands wait; ``work`` was not begun.
        """
        try:
            self._check_room(None)
        except Overloaded:
            self._counters.pulsar_overloads += 1
            raise
        self._waiting += 1
        try:
            return await work()
        finally:
            self._waiting -= 1

    async def drain(self, timeout_ms: int) -> None:
        """Return once all commands are answered; after ``timeout_ms`` cancel the others."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_ms / 1_000)
        await cancel_and_wait(*self._tasks)

    def _check_room(self, listed: str | None) -> None:
        if self._waiting >= DISCOVERY_COMMANDS_WAITING_MAX:
            raise Overloaded(f"{self._waiting} commands wait for shards")
        if listed is None:
            return
        if self._listings.total() >= DISCOVERY_LISTINGS_MAX:
            raise Overloaded(f"{self._listings.total()} namespaces are being listed")
        if self._listings[listed] >= DISCOVERY_TENANT_LISTINGS_MAX:
            raise Overloaded(f"{self._listings[listed]} namespaces of its tenant are being listed")

    async def _answer(self, asker: Asker, command: BaseCommand) -> None:
        if tracing.active is None:
            self._commands.send(asker, await self._answer_to(command))
            return
        # Pulsar's protocol carries no trace, so one begins here.
        with tracing.span(f"pulsar.{BaseCommand.Type.Name(command.type)}", ""):
            self._commands.send(asker, await self._answer_to(command))

    async def _answer_to(self, command: BaseCommand) -> BaseCommand:
        if command.type != BaseCommand.LOOKUP:
            return await self._commands.answer(command)
        tally, clock = self._counters.tally, asyncio.get_running_loop().time
        began_at = clock()
        try:
            answer = await self._commands.answer(command)
        except asyncio.CancelledError:
            tally.given_up((clock() - began_at) * 1_000)
            raise
        error = answer.lookupTopicResponse.error
        # No refusal has this code: see ``server_error_of``.
        failed = error == ServerError.MetadataError
        tally.add((clock() - began_at) * 1_000, failed=int(failed))
        return answer

    def _done(self, asker: Asker, listed: str | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if listed is not None:
            self._listings[listed] -= 1
            if not self._listings[listed]:
                del self._listings[listed]
        self._waiting -= 1
        asker.command_done()


def _tenant_listed(command: BaseCommand) -> str | None:
    """Return the tenant whose namespace a command lists; None if it lists none."""
    if command.type != BaseCommand.GET_TOPICS_OF_NAMESPACE:
        return None
    namespace: str = command.getTopicsOfNamespace.namespace
    return namespace.partition("/")[0]
