"""The versions of a schema that a consumer's messages were written with."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from nextgen.client.st.connection.brokers import refusal_in
from nextgen.client.st.connection.link import Link
from nextgen.client.st.consuming.unpacking import Unpacked
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.errors import ConnectionFailed, ScalableTopicError
from nextgen.client.st.schemas.schema import Schema, unreadable
from nextgen.client.st.wire import error_of, is_final
from nextgen.kernel.limits.scalable import ST_SCHEMA_ATTEMPTS_MAX, ST_SCHEMA_VERSIONS_MAX
from nextgen.tasks.background import start
from protos.pulsar import PulsarApi_pb2 as pulsar


class SchemaVersions:
    """Versions by segment, because each segment counts its own. The last used ones are kept."""

    def __init__(self, schema: Schema[Any], *, timeout_ms: int) -> None:
        self._schema = schema
        self._timeout_ms = timeout_ms
        self._known: dict[tuple[str, bytes], Schema[Any]] = {}
        self._by_definition: dict[tuple[int, bytes], Schema[Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, segment: str, version: bytes) -> Schema[Any] | None:
        """Return the schema that reads messages of a version, None if it has to be fetched."""
        if not self._schema.needs_versions or not version:
            return self._schema
        found = self._known.pop((segment, version), None)
        if found is not None:
            # The last place is that of the last used one.
            self._known[segment, version] = found
        return found

    async def fetch(self, link: Link, segment: str, version: bytes) -> Schema[Any]:
        """Return the schema that reads messages of a version, from the segment's broker.

        Failures that may pass are tried again, with pauses, as long as the connection is there. A
        version that the broker does not give is one whose messages cannot be read.

        Raises:
            ConnectionFailed: The connection ended.
        """
        backoff, attempts = Backoff(), 0
        while (found := self.of(segment, version)) is None:
            try:
                written = await _asked(link, segment, version, self._timeout_ms)
                self._keep((segment, version), written)
            except ScalableTopicError as error:
                if not link.is_open:
                    raise ConnectionFailed("the connection ended") from error
                attempts += is_final(error)
                if attempts >= ST_SCHEMA_ATTEMPTS_MAX:
                    reason = f"the version of the schema that it was written with is lost: {error}"
                    return unreadable(reason)
                await asyncio.sleep(backoff.next_ms() / 1_000)
        return found

    def _keep(self, place: tuple[str, bytes], written: pulsar.Schema) -> None:
        content = (written.type, written.schema_data)
        schema = self._by_definition.get(content)
        if schema is None:
            schema = self._by_definition[content] = self._schema.written_as(*content)
        self._known[place] = schema
        if len(self._known) > ST_SCHEMA_VERSIONS_MAX:
            del self._known[next(iter(self._known))]
        if len(self._by_definition) > ST_SCHEMA_VERSIONS_MAX:
            del self._by_definition[next(iter(self._by_definition))]


class InVersions:
    """The entries of one segment, each with the schema that reads it, in the order of arrival.

    An entry whose version of the schema has to be fetched holds back those behind it.
    """

    def __init__(
        self,
        versions: SchemaVersions,
        segment: str,
        deliver: Callable[[pulsar.CommandMessage, Unpacked, Schema[Any]], None],
        reached_end: Callable[[], None],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._versions = versions
        self._segment = segment
        self._deliver = deliver
        self._reached_end = reached_end
        self._tasks = tasks
        self._link: Link | None = None
        self._held_back: deque[tuple[pulsar.CommandMessage, Unpacked] | None] = deque()

    def reset(self, link: Link) -> None:
        """Everything that was not delivered comes again, on ``link``."""
        self._link = link
        self._held_back = deque()

    def put(self, message: pulsar.CommandMessage, unpacked: Unpacked) -> None:
        if not self._held_back:
            schema = self._versions.of(self._segment, unpacked.metadata.schema_version)
            if schema is not None:
                self._deliver(message, unpacked, schema)
                return
        self._held_back.append((message, unpacked))
        if len(self._held_back) == 1:
            start("st-schema-versions", self._fetch(self._held_back), self._tasks)

    def end(self) -> None:
        """The segment is at its end."""
        if self._held_back:
            self._held_back.append(None)
        else:
            self._reached_end()

    async def _fetch(self, held_back: deque[tuple[pulsar.CommandMessage, Unpacked] | None]) -> None:
        link = self._link
        assert link is not None
        while held_back:
            entry = held_back[0]
            if entry is None:
                self._reached_end()
            else:
                version = entry[1].metadata.schema_version
                try:
                    schema = await self._versions.fetch(link, self._segment, version)
                except ConnectionFailed:
                    return
                if held_back is not self._held_back:
                    return
                self._deliver(*entry, schema)
            held_back.popleft()


async def _asked(link: Link, segment: str, version: bytes, timeout_ms: int) -> pulsar.Schema:
    answer = await link.ask(
        pulsar.BaseCommand(
            type=pulsar.BaseCommand.GET_SCHEMA,
            getSchema=pulsar.CommandGetSchema(topic=segment, schema_version=version),
        ),
        timeout_ms,
    )
    if answer.type != pulsar.BaseCommand.GET_SCHEMA_RESPONSE:
        raise refusal_in(answer)
    response = answer.getSchemaResponse
    if response.HasField("error_code"):
        raise error_of(response.error_code, response.error_message)
    return response.schema
