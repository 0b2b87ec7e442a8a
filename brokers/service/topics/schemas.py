"""The versions of one topic's schema, kept in its ledger's state.

A deletion is a fact of its own, ``SCHEMAS_DELETED_KEY``: the number below which versions are
deleted. They can still be read by their numbers, for messages that were written with them, unless
the deletion is forced. Numbers are never given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.compatibility import ComparisonBudget, InvalidSchema, check_schema
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.schemas.strategies import (
    consumer_obstacles,
    is_with_all,
    reads_all,
    version_obstacles,
)
from brokers.domain.storage_policy import StoragePolicy
from brokers.domain.topic_facts import SCHEMA_PREFIX, SCHEMAS_DELETED_KEY
from brokers.ports.ledger import TopicLedger
from brokers.ports.shadows import ShadowLedger
from brokers.service.storage_refusal import STORAGE_ERRORS, storage_refusal
from brokers.wire import schema_of_stored, stored_schema
from nextgen.kernel.governance.policies import SchemaCompatibility
from nextgen.kernel.limits.pulsar import (
    SCHEMA_BYTES_MAX,
    SCHEMA_VERSIONS_BYTES_MAX,
    SCHEMA_VERSIONS_MAX,
)


class TopicSchemas:
    """All versions, numbered from 0 on. A version never changes.

    ``strategy`` applies to producers and consumers that connect later; so does ``accepts_new``,
    whether they may add versions. ``on_changed`` is called when another version, or a deletion, is
    durable.
    """

    def __init__(
        self,
        topic_name: str,
        ledger: TopicLedger,
        policy: StoragePolicy,
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.use_policy(policy)
        self._topic_name = topic_name
        self._ledger = ledger
        self._on_changed = on_changed
        self._is_of_source = isinstance(ledger, ShadowLedger)
        self._storing: dict[int, asyncio.Future[None]] = {}
        self.reload()

    def reload(self) -> None:
        """Read the versions from the ledger's state. Those of a shadow's source may change.

        Raises:
            ValueError: One cannot be read. All versions stay as they were.
        """
        state = self._ledger.state
        stored = {
            int(key.removeprefix(SCHEMA_PREFIX)): value
            for key, value in state.items()
            if key.startswith(SCHEMA_PREFIX)
        }
        first = int(state.get(SCHEMAS_DELETED_KEY, b"0"))
        self._versions = {version: schema_of_stored(stored[version]) for version in sorted(stored)}
        self._first = first
        """The first version that is not deleted, or the next one."""
        self._next = max(self._first, *(version + 1 for version in stored), 0)
        self._stored_bytes = sum(map(len, stored.values()))

    def use_policy(self, policy: StoragePolicy) -> None:
        """Set what applies to producers and consumers that connect later."""
        self.strategy = policy.schema_compatibility
        self.accepts_new = policy.accepts_schemas

    def __len__(self) -> int:
        """Return the number of versions that are not deleted."""
        return self._next - self._first

    def find(self, version: int | None) -> tuple[int, Schema] | None:
        """Return a version and its number, the latest for None; None if it does not exist.

        A deleted version is found by its number only.
        """
        if version is None:
            if not self:
                return None
            version = self._last
        schema = self._versions.get(version)
        return None if schema is None else (version, schema)

    def versions(self, first: int = 0) -> Iterator[tuple[int, Schema]]:
        """Yield the versions that are not deleted, from number ``first`` on, ascending."""
        for version in range(max(first, self._first), self._next):
            yield version, self._versions[version]

    def version_of(self, schema: Schema) -> int | None:
        """Return the number of a version with this kind and data; None if there is none."""
        identity = schema.is_the_same_as
        for version in reversed(range(self._first, self._next)):
            if self._versions[version].is_the_same_as == identity:
                return version
        return None

    async def check(self, schema: Schema) -> int | None:
        """Return the version of ``schema``, None if it is new and may become the next one.

        Raises:
            Refusal: It is invalid, incompatible with the existing versions, or there are too many
                versions.
        """
        version = self.version_of(schema)
        if version is None:
            budget = ComparisonBudget(schema)
            self._check_new(schema, budget)
            await self._check_goes_with_versions(schema, budget)
            # Another client may have added this version meanwhile, or the last possible one.
            version = self.version_of(schema)
        if version is None:
            self._check_room(len(stored_schema(schema)))
        return version

    async def add(self, schema: Schema, *, by_operator: bool = False) -> int:
        """Return the version of ``schema``, when it is durable; add it if it is new.

        Raises:
            Refusal: As of ``check``; it is new, and a client may add none; or storage failed.
        """
        if self._is_of_source and self.version_of(schema) is None:
            raise self._not_here()
        if not (self.accepts_new or by_operator) and self.version_of(schema) is None:
            raise self._incompatible("it is no version, and the policies let no client add one")
        version = await self.check(schema)
        if version is None:
            value = stored_schema(schema)
            version = self._next
            self._next += 1
            self._versions[version] = schema
            self._stored_bytes += len(value)
            self._storing[version] = self._ledger.put_state(f"{SCHEMA_PREFIX}{version}", value)
        storing = self._storing.get(version)
        if storing is not None:
            await self._stored(version, storing)
        return version

    async def delete(self, *, is_forced: bool) -> int:
        """Delete all versions; return the number of the next one when that is durable.

        A deleted version can still be read by its number, unless ``is_forced``. May be repeated.

        Raises:
            Refusal: It is a shadow's. Or storage failed: the versions may be deleted, or not.
        """
        if self._is_of_source:
            raise self._not_here()
        following = self._next
        self._first = following
        # The mark is stored first: a version that is missing without it would be a damage.
        writes = [self._ledger.put_state(SCHEMAS_DELETED_KEY, b"%d" % following)]
        if is_forced:
            for version in list(self._versions):
                self._stored_bytes -= len(stored_schema(self._versions.pop(version)))
                writes.append(self._ledger.put_state(f"{SCHEMA_PREFIX}{version}", None))
        try:
            await asyncio.shield(asyncio.gather(*writes))
        except STORAGE_ERRORS as error:
            raise storage_refusal(error, self._topic_name) from error
        self._on_changed()
        return following

    async def check_consumer(self, schema: Schema, *, is_idle: bool) -> None:
        """Check that a consumer may have ``schema``. The first client of an unused topic adds it.

        Raises:
            Refusal: The consumer could not read the producers' messages.
        """
        if schema.kind in (SchemaKind.NONE, SchemaKind.AUTO_CONSUME):
            return
        if not self and is_idle:
            if not self._is_of_source:
                await self.add(schema)
            return
        strategy = self.strategy
        if not self and strategy is not SchemaCompatibility.ALWAYS_COMPATIBLE:
            raise self._incompatible("the topic has messages without a schema")
        compared = list(self.versions(0 if reads_all(strategy) else self._last))
        budget = ComparisonBudget(schema)
        for _, version in compared:
            for problem in consumer_obstacles(schema, version, strategy, budget):
                if problem is not None:
                    raise self._incompatible(problem)
                await asyncio.sleep(0)

    def _not_here(self) -> Refusal:
        return Refusal(
            ServerError.NOT_ALLOWED,
            f"topic {self._topic_name} is a shadow: its schema is that of its source",
        )

    async def _stored(self, version: int, storing: asyncio.Future[None]) -> None:
        """Return when a version, of this or another client, is durable."""
        try:
            await asyncio.shield(storing)
        except STORAGE_ERRORS as error:
            raise storage_refusal(error, self._topic_name) from error
        if self._storing.pop(version, None) is not None:
            self._on_changed()

    @property
    def _last(self) -> int:
        return self._next - 1

    def _check_new(self, schema: Schema, budget: ComparisonBudget) -> None:
        size = len(stored_schema(schema))
        if size > SCHEMA_BYTES_MAX:
            raise self._incompatible(f"it has {size} bytes, at most {SCHEMA_BYTES_MAX} may be")
        self._check_room(size)
        try:
            check_schema(schema, budget)
        except InvalidSchema as error:
            raise self._incompatible(str(error)) from error

    async def _check_goes_with_versions(self, schema: Schema, budget: ComparisonBudget) -> None:
        """Check that a schema may become the next version.

        Other tasks run before and between the comparisons and may add versions, which are then
        compared too, or delete all.
        """
        await asyncio.sleep(0)
        strategy = self.strategy
        number = self._first if is_with_all(strategy) else self._last
        while (number := max(number, self._first)) < self._next:
            for problem in version_obstacles(schema, self._versions[number], strategy, budget):
                if problem is not None:
                    raise self._incompatible(problem)
                await asyncio.sleep(0)
            number += 1

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
