"""An import creates what is missing, finishes what another began, and changes nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, Policies, PolicyLevel
from nextgen.kernel.limits.bulk import IMPORT_BATCHES_MAX, IMPORT_WRITES_MAX
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY, shadow_source_of
from nextgen.migration.importer import CHARACTERS_MAX, Importer, ImportReport
from nextgen.migration.own_cluster import OwnCluster
from nextgen.migration.records import Record, Remarks, SchemaVersion
from tests.support.discovery.fake_inventory import FakeInventory

POLICIES = replace(NO_POLICIES, message_ttl_ms=60_000)
OTHER_POLICIES = replace(NO_POLICIES, message_ttl_ms=1)


class Records:
    """A source of these records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    async def records(self, remarks: Remarks) -> AsyncIterator[Record]:
        for record in self._records:
            yield record


def tenant(name: str = "acme") -> Record:
    return Record(PolicyLevel.TENANT, name, {"adminRoles": '["root"]'})


def namespace(name: str = "acme/orders", policies: Policies = POLICIES) -> Record:
    return Record(PolicyLevel.NAMESPACE, name, {"owner": "shop"}, policies)


def topic(
    name: str = "eu", partitions: int = 0, policies: Policies = NO_POLICIES, **properties: str
) -> Record:
    full = f"persistent://acme/orders/{name}"
    return Record(PolicyLevel.TOPIC, full, properties, policies, partitions)


ALL = [tenant(), namespace(), topic("eu", 3, POLICIES, team="a"), topic("us"), topic("za", 0)]


def imported(cluster: FakeInventory, records: Sequence[Record] = ALL) -> ImportReport:
    importer = Importer(cluster)  # type: ignore[arg-type]
    return asyncio.run(importer.run(Records(records)))


def counts(report: ImportReport, level: PolicyLevel = PolicyLevel.TOPIC) -> dict[str, int]:
    found = report.as_dict()[f"{level.value}s"]
    assert found.pop("read") == sum(found.values())
    return {name: count for name, count in found.items() if count}


def test_an_import_creates_everything_with_its_policies() -> None:
    cluster = FakeInventory()

    report = imported(cluster)

    assert [counts(report, level) for level in PolicyLevel] == [
        {"created": 1},
        {"created": 1},
        {"created": 3},
    ]
    assert cluster.objects["persistent://acme/orders/eu"] == (3, {"team": "a"})
    assert cluster.policies["acme/orders"] == (POLICIES, 1)
    assert cluster.policies["persistent://acme/orders/eu"] == (POLICIES, 1)


def test_a_second_import_changes_nothing() -> None:
    cluster = FakeInventory()
    imported(cluster)
    writes = cluster.writes

    report = imported(cluster)

    assert cluster.writes == writes
    assert counts(report) == {"same": 3}
    assert counts(report, PolicyLevel.NAMESPACE) == {"same": 1}
    assert report.differences.count == 0


@pytest.mark.parametrize("writes", range(7))
def test_an_import_that_ended_early_is_finished_by_another(writes: int) -> None:
    cluster, whole = FakeInventory(), FakeInventory()
    imported(whole)
    cluster.writes_left = writes
    with pytest.raises(Unavailable):
        imported(cluster)

    cluster.writes_left = None
    report = imported(cluster)

    assert (cluster.objects, cluster.policies) == (whole.objects, whole.policies)
    assert report.differences.count == report.refusals.count == 0


SOURCE = "persistent://acme/orders/paid"
SHADOWS = tuple(f"persistent://acme/orders/{name}" for name in ("audit", "zone"))
"""One whose name comes before its source's, and one behind it."""

WITH_SHADOWS = [
    tenant(),
    namespace(),
    topic("audit", **{SHADOW_SOURCE_PROPERTY: SOURCE}),
    topic("paid", 0, replace(NO_POLICIES, shadow_topics=SHADOWS)),
    topic("zone", **{SHADOW_SOURCE_PROPERTY: SOURCE}),
]


class WithSources(FakeInventory):
    """Refuses a shadow without its source, and a list with a topic that is not there."""

    def _create(self, name: str, partitions: int, properties: Mapping[str, str]) -> None:
        if (source := shadow_source_of(properties)) and source not in self.objects:
            raise Refused(RejectionCode.NOT_FOUND, "there is no source")
        super()._create(name, partitions, properties)

    async def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> None:
        if not all(shadow in self.objects for shadow in policies.shadow_topics):
            raise Refused(RejectionCode.NOT_ALLOWED, "a shadow is not there")
        await super().set_policies(name, policies, expected_version=expected_version)


@pytest.mark.parametrize("writes", [*range(6), None])
def test_shadows_come_behind_their_source_and_lists_behind_shadows(writes: int | None) -> None:
    cluster = WithSources()
    if writes is not None:
        cluster.writes_left = writes
        with pytest.raises(Unavailable):
            imported(cluster, WITH_SHADOWS)
        cluster.writes_left = None

    report = imported(cluster, WITH_SHADOWS)

    assert cluster.objects[SOURCE] == (0, {})
    assert all(cluster.objects[name] == (0, {SHADOW_SOURCE_PROPERTY: SOURCE}) for name in SHADOWS)
    assert cluster.policies[SOURCE][0].shadow_topics == SHADOWS
    assert report.differences.count == report.refusals.count == 0
    assert counts(imported(cluster, WITH_SHADOWS)) == {"same": 3}


def test_what_exists_otherwise_is_left_and_reported() -> None:
    cluster = FakeInventory()
    imported(cluster)
    writes = cluster.writes

    report = imported(
        cluster,
        [
            tenant(),
            namespace(policies=OTHER_POLICIES),
            topic("eu", 4, POLICIES, team="a"),
            topic("us", team="b"),
            topic("za"),
        ],
    )

    assert cluster.writes == writes
    assert counts(report) == {"different": 2, "same": 1}
    assert counts(report, PolicyLevel.NAMESPACE) == {"different": 1}
    assert report.differences.first == [
        "acme/orders: policies",
        "persistent://acme/orders/eu: partitions",
        "persistent://acme/orders/us: properties",
    ]


def test_what_is_refused_is_reported_and_the_rest_imported() -> None:
    cluster = FakeInventory()
    stray = Record(PolicyLevel.TOPIC, "persistent://acme/nowhere/t")

    report = imported(cluster, [tenant(), namespace(), topic(), stray])

    assert counts(report) == {"created": 1, "refused": 1}
    assert report.refusals.first == ["persistent://acme/nowhere/t: PARENT_NOT_FOUND: refused"]


def test_a_request_has_a_bounded_number_and_size_of_topics() -> None:
    cluster = FakeInventory()
    many = [topic(f"t{number}") for number in range(TOPICS_PER_CREATE_MAX + 1)]
    large = [topic(f"l{number}", text="x" * (CHARACTERS_MAX // 2 - 4)) for number in range(3)]

    report = imported(cluster, [tenant(), namespace(), *many, *large])

    assert counts(report) == {"created": len(many) + len(large)}
    assert sorted(cluster.batches) == [1, 3, TOPICS_PER_CREATE_MAX]


def test_import_batches_max_are_in_flight_and_no_more() -> None:
    cluster = FakeInventory()
    count = (IMPORT_BATCHES_MAX + 1) * TOPICS_PER_CREATE_MAX

    imported(cluster, [tenant(), namespace(), *(topic(f"t{number}") for number in range(count))])

    assert cluster.calls_max["create_topics"] == IMPORT_BATCHES_MAX


def test_import_writes_max_are_in_flight_and_no_more() -> None:
    cluster = FakeInventory()
    names = [f"t{number}" for number in range(IMPORT_WRITES_MAX + 1)]

    imported(cluster, [tenant(), namespace(), *(topic(name, 0, POLICIES) for name in names)])

    assert cluster.calls_max["set_policies"] == IMPORT_WRITES_MAX


def test_what_one_cluster_has_another_gets() -> None:
    source, target = FakeInventory(), FakeInventory()
    imported(source)

    asyncio.run(Importer(target).run(OwnCluster(source)))  # type: ignore[arg-type]

    assert (target.objects, target.policies) == (source.objects, source.policies)


# Schemas ----------------------------------------------------------------------------------------

VERSIONS = (SchemaVersion("STRING", ""), SchemaVersion("JSON", "{}"))


class Schemas:
    """Schemas by topic. One of the type ``BAD`` is refused."""

    def __init__(self) -> None:
        self.of: dict[str, list[SchemaVersion]] = {}

    async def add_missing(self, topic: str, schemas: Sequence[SchemaVersion]) -> int:
        if any(each.type == "BAD" for each in schemas):
            raise Refused("NOT_ALLOWED", "HTTP 422 no schema")
        present = self.of.setdefault(topic, [])
        missing = [each for each in schemas if each not in present]
        present += missing
        return len(missing)


def imported_with(cluster: FakeInventory, target: Schemas | None, *topics: Record) -> ImportReport:
    importer = Importer(cluster, schemas=target)  # type: ignore[arg-type]
    return asyncio.run(importer.run(Records([tenant(), namespace(), *topics])))


def test_schemas_follow_their_topics_and_a_second_import_adds_none() -> None:
    cluster, target = FakeInventory(), Schemas()
    eu = replace(topic("eu"), schemas=VERSIONS)

    first = imported_with(cluster, target, eu, topic("us"))
    again = imported_with(cluster, target, eu, topic("us"))

    assert target.of == {eu.name: list(VERSIONS)}
    assert first.as_dict()["schemas"] == {"read": 2, "added": 2, "same": 0, "refused": 0}
    assert again.as_dict()["schemas"] == {"read": 2, "added": 0, "same": 2, "refused": 0}
    assert counts(again) == {"same": 2}


def test_a_schema_that_is_refused_is_reported_and_the_topic_stays() -> None:
    cluster = FakeInventory()
    bad = replace(topic("eu"), schemas=(*VERSIONS, SchemaVersion("BAD", "")))

    report = imported_with(cluster, Schemas(), bad)

    assert report.as_dict()["schemas"]["refused"] == 3
    assert report.refusals.first == [f"{bad.name}: its schema: HTTP 422 no schema"]
    assert counts(report) == {"created": 1}


def test_schemas_without_a_place_are_said_not_to_be_carried() -> None:
    report = imported_with(FakeInventory(), None, replace(topic("eu"), schemas=VERSIONS))

    assert report.not_carried.first == ["persistent://acme/orders/eu: 2 versions of its schema"]
