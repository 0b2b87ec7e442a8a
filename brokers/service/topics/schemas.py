"""The versions of one topic's schema, kept in its ledger's state."""

from __future__ import annotations

import asyncio

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.compatibility import ComparisonBudget, InvalidSchema, check_schema
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.schemas.strategies import (
    consumer_obstacle,
    is_with_all,
    reads_all,
    version_obstacles,
)
from brokers.ports.ledger import TopicLedger
from brokers.service.storage_refusal import STORAGE_ERRORS, storage_refusal
from brokers.wire import schema_of_stored, stored_schema
from nextgen.kernel.governance.policies import SchemaCompatibility
from nextgen.kernel.limits.pulsar import (
    SCHEMA_BYTES_MAX,
    SCHEMA_VERSIONS_BYTES_MAX,
    SCHEMA_VERSIONS_MAX,
)

KEY_PREFIX = "schema/"
"""Prefix of keys in the ledger's state; the decimal version follows."""


class TopicSchemas:
    """All versions, densely from 0. A version never changes.

    ``strategy`` applies to producers and consumers that connect later.
    """

    def __init__(self, topic_name: str, ledger: TopicLedger, strategy: SchemaCompatibility) -> None:
        self.strategy = strategy
        self._topic_name = topic_name
        self._ledger = ledger
        stored = {
            int(key.removeprefix(KEY_PREFIX)): value
            for key, value in ledger.state.items()
            if key.startswith(KEY_PREFIX)
        }
        self._versions = [schema_of_stored(stored[version]) for version in sorted(stored)]
        self._stored_bytes = sum(map(len, stored.values()))
        self._storing: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def find(self, version: int | None) -> tuple[int, Schema] | None:
        """Return a version and its number, the latest for None; None if it does not exist."""
        if version is None:
            version = len(self._versions) - 1
        if 0 <= version < len(self._versions):
            return version, self._versions[version]
        return None

    async def add(self, schema: Schema) -> int:
        """Return the version of ``schema``, when it is durable; add it if it is new.

        Raises:
            Refusal: It is invalid, incompatible with the existing versions, or there are too many
                versions.
        """
        version = self._version_of(schema)
        if version is None:
            self._check_new(schema)
            await self._check_goes_with_versions(schema)
            # Another client may have added this version meanwhile, or the last possible one.
            version = self._version_of(schema)
        if version is None:
            value = stored_schema(schema)
            self._check_room(len(value))
            version = len(self._versions)
            self._versions.append(schema)
            self._stored_bytes += len(value)
            self._storing[version] = self._ledger.put_state(f"{KEY_PREFIX}{version}", value)
        storing = self._storing.get(version)
        if storing is not None:
            await self._stored(version, storing)
        return version

    async def check_consumer(self, schema: Schema, *, is_idle: bool) -> None:
        """Check that a consumer may have ``schema``. The first client of an unused topic adds it.

        Raises:
            Refusal: The consumer could not read the producers' messages.
        """
        if schema.kind in (SchemaKind.NONE, SchemaKind.AUTO_CONSUME):
            return
        if not self._versions and is_idle:
            await self.add(schema)
            return
        strategy = self.strategy
        if not self._versions and strategy is not SchemaCompatibility.ALWAYS_COMPATIBLE:
            raise self._incompatible("the topic has messages without a schema")
        compared = self._versions if reads_all(strategy) else self._versions[-1:]
        budget = ComparisonBudget(schema)
        for number, version in enumerate(list(compared)):
            if number:
                await asyncio.sleep(0)
            problem = consumer_obstacle(schema, version, strategy, budget)
            if problem is not None:
                raise self._incompatible(problem)

    async def _stored(self, version: int, storing: asyncio.Future[None]) -> None:
        """Return when a version, of this or another client, is durable."""
        try:
            await asyncio.shield(storing)
        except STORAGE_ERRORS as error:
            raise storage_refusal(error, self._topic_name) from error
        self._storing.pop(version, None)

    def _version_of(self, schema: Schema) -> int | None:
        identity = schema.is_the_same_as
        for version in reversed(range(len(self._versions))):
            if self._versions[version].is_the_same_as == identity:
                return version
        return None

    def _check_new(self, schema: Schema) -> None:
        size = len(stored_schema(schema))
        if size > SCHEMA_BYTES_MAX:
            raise self._incompatible(f"it has {size} bytes, at most {SCHEMA_BYTES_MAX} may be")
        self._check_room(size)
        try:
            check_schema(schema)
        except InvalidSchema as error:
            raise self._incompatible(str(error)) from error

    async def _check_goes_with_versions(self, schema: Schema) -> None:
        """Check that a schema may become the next version.

        Other tasks run between two comparisons and may add versions, which are then compared too.
        """
        strategy = self.strategy
        budget = ComparisonBudget(schema)
        compared = 0 if is_with_all(strategy) else max(0, len(self._versions) - 1)
        while compared < len(self._versions):
            for problem in version_obstacles(schema, self._versions[compared], strategy, budget):
                if problem is not None:
                    raise self._incompatible(problem)
                await asyncio.sleep(0)
            compared += 1

    def _check_room(self, size: int) -> None:
        """Check that one more version, of ``size`` bytes, may be kept."""
        if len(self._versions) >= SCHEMA_VERSIONS_MAX:
            raise self._incompatible(f"there are {SCHEMA_VERSIONS_MAX} versions already")
        if self._stored_bytes + size > SCHEMA_VERSIONS_BYTES_MAX:
            raise self._incompatible(
                f"all versions would have {self._stored_bytes + size} bytes together, "
                f"at most {SCHEMA_VERSIONS_BYTES_MAX} may be"
            )

    def _incompatible(self, problem: str) -> Refusal:
        return Refusal(
            ServerError.INCOMPATIBLE_SCHEMA,
            f"schema is not compatible with topic {self._topic_name}: {problem}",
        )
