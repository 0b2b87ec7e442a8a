"""Brings records into a cluster: what is missing is created, and what exists is left as it is.

    source ──▶ tenants ──▶ namespaces ──▶ topics, TOPICS_PER_CREATE_MAX a request ──▶ counts
                                            ╰──▶ shadows ──▶ policies of topics that list shadows

An object is created with its properties; policies are set behind that, if they were never set.
So an import that ended early is finished by a repetition, and a repetition of one that is done
changes nothing. What exists and differs is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from nextgen.client.client import Client
from nextgen.client.model import CreatedTopic, Namespace, NewTopic, Tenant
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel
from nextgen.kernel.limits.bulk import IMPORT_BATCHES_MAX, IMPORT_WRITES_MAX
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.names import parse_topic
from nextgen.kernel.routing.shadows import shadow_source_of
from nextgen.migration.records import Record, Remarks, SchemaVersion, Source
from nextgen.tasks.background import cancel_and_wait, join

PARENTS_MAX = 256
"""Tenants or namespaces that are created together."""

POLICIES = "policies"


class SchemaTarget(Protocol):
    """Where schemas of topics go."""

    async def add_missing(self, topic: str, schemas: Sequence[SchemaVersion]) -> int:
        """Add those versions that the topic has not, in order; return how many.

        Raises:
            Refused: One is no schema, or may not follow those that are there.
            MetadataError: There is no answer.
        """
        ...


_Like = tuple[int, int, int]
"""Partitions, and hashes of properties and policies: what decides whether objects are the same."""

EXISTING_NAMESPACES_MAX = 2
"""Namespaces whose topics are remembered: a source names one namespace behind the other."""

CHARACTERS_MAX = 500_000
"""Characters of the properties in one request, which stays below ``GRPC_MESSAGE_BYTES_MAX`` with
four bytes for each, and below ``GRPC_REQUEST_FIELDS_MAX``: a property has at least one."""


@dataclass(slots=True)
class Imported:
    """Numbers of records by what became of them; they add up to ``read``."""

    read: int = 0
    created: int = 0
    completed: int = 0
    """They existed without the policies that the source has, and have them now."""
    same: int = 0
    different: int = 0
    """Objects that exist with other content. They were left unchanged."""
    refused: int = 0


@dataclass(slots=True)
class ImportedSchemas:
    """Versions of schemas; they add up to ``read``. ``refused`` has all of a topic's."""

    read: int = 0
    added: int = 0
    same: int = 0
    refused: int = 0


@dataclass(slots=True)
class ImportReport:
    """What an import did. Lists of remarks are bounded, their numbers are not."""

    levels: dict[PolicyLevel, Imported] = field(
        default_factory=lambda: {level: Imported() for level in PolicyLevel}
    )
    schemas: ImportedSchemas = field(default_factory=ImportedSchemas)
    not_carried: Remarks = field(default_factory=Remarks)
    differences: Remarks = field(default_factory=Remarks)
    refusals: Remarks = field(default_factory=Remarks)

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {f"{name}s": asdict(each) for name, each in self.levels.items()}
        found["schemas"] = asdict(self.schemas)
        for name in ("not_carried", "differences", "refusals"):
            remarks: Remarks = getattr(self, name)
            found[name] = {"count": remarks.count, "first": remarks.first}
        return found


OnImported = Callable[[ImportReport], None]


class Importer:
    """One import into the cluster of ``client``; ``on_imported`` is called as counts grow.

    Without ``schemas`` those of the source are remarked as not carried.
    """

    def __init__(
        self,
        client: Client,
        on_imported: OnImported = lambda report: None,
        schemas: SchemaTarget | None = None,
    ) -> None:
        self.report = ImportReport()
        self._client = client
        self._on_imported = on_imported
        self._schemas = schemas
        self._existing = Existing(client)
        self._writes = asyncio.Semaphore(IMPORT_WRITES_MAX)
        self._shadows: list[Record] = []
        self._listing: list[tuple[Record, CreatedTopic]] = []
        """Topics that list shadows, with the outcomes of their creation."""

    async def run(self, source: Source) -> ImportReport:
        """Import every record of ``source``.

        Raises:
            SourceFailed: The source ended early. What was imported stays.
            MetadataError: The cluster does not answer.
        """
        under_way: set[asyncio.Task[None]] = set()
        try:
            async for level, batch in _batches(source.records(self.report.not_carried)):
                self.report.levels[level].read += len(batch)
                if level is not PolicyLevel.TOPIC:
                    # Children are sent when their parents exist.
                    await asyncio.gather(*(self._parent(record) for record in batch))
                    self._on_imported(self.report)
                    continue
                # A shadow is created behind its source, whose name may come later.
                self._shadows += filter(_is_shadow, batch)
                if not (batch := [record for record in batch if not _is_shadow(record)]):
                    continue
                under_way.add(join(self._topics(batch)))
                if len(under_way) == IMPORT_BATCHES_MAX:
                    under_way = await _first_done(under_way)
            await asyncio.gather(*under_way)
        finally:
            await cancel_and_wait(*under_way)
        async for _level, batch in _batches(_each(self._shadows)):
            await self._topics(batch)
        await asyncio.gather(*(self._settle(*each) for each in self._listing))
        self._on_imported(self.report)
        return self.report

    async def _parent(self, record: Record) -> None:
        create = self._client.create_tenant
        if record.level is PolicyLevel.NAMESPACE:
            create = self._client.create_namespace
        try:
            async with self._writes:
                await create(record.name, record.properties)
        except Refused as refusal:
            if refusal.code != RejectionCode.ALREADY_EXISTS:
                self._refused(record, f"{refusal.code}: {refusal}")
                return
            await self._compare(record)
            return
        if await self._set_policies(record):
            self.report.levels[record.level].created += 1

    async def _topics(self, batch: Sequence[Record]) -> None:
        wanted = [NewTopic(record.name, record.partitions, record.properties) for record in batch]
        outcomes = await self._client.create_topics(wanted)
        rest: list[Awaitable[None]] = []
        topics = self.report.levels[PolicyLevel.TOPIC]
        for record, outcome in zip(batch, outcomes, strict=True):
            if record.policies.shadow_topics:
                self._listing.append((record, outcome))
            elif outcome.is_created and record.policies == NO_POLICIES:
                topics.created += 1
            else:
                rest.append(self._settle(record, outcome))
        await asyncio.gather(*rest)
        await asyncio.gather(
            *(
                self._add_schemas(record)
                for record, outcome in zip(batch, outcomes, strict=True)
                if record.schemas and _is_there(outcome) and not _is_shadow(record)
            )
        )
        self._on_imported(self.report)

    async def _add_schemas(self, record: Record) -> None:
        """Add the schemas of a topic that exists. They are kept by the broker that serves it."""
        counts, count = self.report.schemas, len(record.schemas)
        counts.read += count
        if self._schemas is None:
            counts.refused += count
            self.report.not_carried.add(record.name, f"{count} versions of its schema")
            return
        try:
            async with self._writes:
                added = await self._schemas.add_missing(record.name, record.schemas)
        except Refused as refusal:
            counts.refused += count
            self.report.refusals.add(record.name, f"its schema: {refusal}")
            return
        counts.added += added
        counts.same += count - added

    async def _settle(self, record: Record, outcome: CreatedTopic) -> None:
        if outcome.is_created:
            if await self._set_policies(record):
                self.report.levels[record.level].created += 1
        elif outcome.rejection_code == RejectionCode.ALREADY_EXISTS:
            await self._compare(record)
        else:
            self._refused(record, f"{outcome.rejection_code}: {outcome.message}")

    async def _compare(self, record: Record) -> None:
        """Count an existing object as the same, as completed with its policies, or as different."""
        counts = self.report.levels[record.level]
        differences = await self._differences(record)
        if differences == [POLICIES] and await self._has_no_policies(record):
            if await self._set_policies(record):
                counts.completed += 1
        elif differences:
            counts.different += 1
            self.report.differences.add(record.name, ", ".join(differences))
        else:
            counts.same += 1

    async def _differences(self, record: Record) -> list[str]:
        there = await self._existing.like(record)
        if there is None:
            return ["deleted meanwhile"]
        wanted = _like(record.partitions, record.properties, record.policies)
        return [
            name
            for name, one, other in zip(
                ("partitions", "properties", POLICIES), there, wanted, strict=True
            )
            if one != other
        ]

    async def _has_no_policies(self, record: Record) -> bool:
        """Return whether policies were never set: an import that ended early has left it so."""
        async with self._writes:
            return (await self._client.get_policies(record.name)).version == 0

    async def _set_policies(self, record: Record) -> bool:
        """Set the policies of an object that has none; return False if they were refused."""
        if record.policies == NO_POLICIES:
            return True
        try:
            async with self._writes:
                await self._client.set_policies(record.name, record.policies, expected_version=0)
        except Refused as refusal:
            self._refused(record, f"its policies: {refusal.code}: {refusal}")
            return False
        return True

    def _refused(self, record: Record, why: str) -> None:
        self.report.levels[record.level].refused += 1
        self.report.refusals.add(record.name, why)


class Existing:
    """What there is in the cluster of objects that turn out to exist.

    Topics are read by namespace, once one of it exists. Memory: some 300 bytes for each topic of
    the ``EXISTING_NAMESPACES_MAX`` namespaces that were read last.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reads = asyncio.Semaphore(IMPORT_WRITES_MAX)
        self._namespaces: dict[str, asyncio.Task[dict[str, _Like]]] = {}

    async def like(self, record: Record) -> _Like | None:
        """Return what the object of that name is like, None if there is none any more."""
        if record.level is PolicyLevel.TOPIC:
            found = (await self._topics_of(parse_topic(record.name).namespace_text)).get(
                record.name
            )
            return found or await self._read_topic(record.name)
        there: Tenant | Namespace | None
        async with self._reads:
            if record.level is PolicyLevel.TENANT:
                there = await self._client.get_tenant(record.name)
            else:
                there = await self._client.get_namespace(record.name)
            if there is None:
                return None
            policies = await self._client.get_policies(record.name)
        return _like(0, there.properties, policies.policies)

    async def _read_topic(self, name: str) -> _Like | None:
        async with self._reads:
            topic = await self._client.get_topic(name)
            if topic is None:
                return None
            policies = await self._client.get_policies(name)
        return _like(topic.partitions, topic.properties, policies.policies)

    def _topics_of(self, namespace: str) -> asyncio.Task[dict[str, _Like]]:
        task = self._namespaces.get(namespace)
        if task is None:
            if len(self._namespaces) == EXISTING_NAMESPACES_MAX:
                del self._namespaces[next(iter(self._namespaces))]
            task = self._namespaces[namespace] = join(self._read_namespace(namespace))
        return task

    async def _read_namespace(self, namespace: str) -> dict[str, _Like]:
        return {
            topic.name: _like(topic.partitions, topic.properties, policies)
            async for topic, policies in self._client.list_topics_and_policies(namespace)
        }


def _is_shadow(record: Record) -> bool:
    return bool(shadow_source_of(record.properties))


async def _each(records: Sequence[Record]) -> AsyncIterator[Record]:
    for record in records:
        yield record


def _is_there(outcome: CreatedTopic) -> bool:
    return outcome.is_created or outcome.rejection_code == RejectionCode.ALREADY_EXISTS


def _like(partitions: int, properties: Mapping[str, str], policies: Policies) -> _Like:
    return partitions, hash(frozenset(properties.items())), hash(policies)


async def _batches(
    records: AsyncIterator[Record],
) -> AsyncIterator[tuple[PolicyLevel, list[Record]]]:
    """Yield neighbours of one level together."""
    batch: list[Record] = []
    characters = 0
    async for record in records:
        count_max = TOPICS_PER_CREATE_MAX if record.level is PolicyLevel.TOPIC else PARENTS_MAX
        size = sum(len(name) + len(value) for name, value in record.properties.items())
        characters += size
        if batch and (
            batch[0].level is not record.level
            or len(batch) >= count_max
            or characters > CHARACTERS_MAX
        ):
            yield batch[0].level, batch
            batch, characters = [], size
        batch.append(record)
    if batch:
        yield batch[0].level, batch


async def _first_done(tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Return those that go on once the first is done; raise what a done one raised."""
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return rest
