"""Schemas that are legal and were expensive: time and memory are about linear in their bytes."""

from __future__ import annotations

import json
import tracemalloc
from copy import copy
from typing import Any

import pytest

from brokers.domain.schemas.compatibility import (
    ComparisonBudget,
    check_schema,
    reading_obstacle,
)
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.schemas.strategies import version_obstacles
from nextgen.kernel.governance.policies import SchemaCompatibility
from nextgen.kernel.limits.pulsar import (
    SCHEMA_BYTES_MAX,
    SCHEMA_BYTES_PER_STEP,
    SCHEMA_CHECK_STEPS_MAX,
    SCHEMA_COMPARISONS_MAX,
    SCHEMA_VERSIONS_MAX,
)
from tests.support.costs.processor_time import processor_time

CPU_S_MAX = 1
"""Of comparisons that took up to ten seconds, and take some 50 ms."""


def schema(structure: object) -> Schema:
    data = json.dumps(structure, separators=(",", ":")).encode()
    assert len(data) < SCHEMA_BYTES_MAX
    return Schema("s", SchemaKind.AVRO, data)


def record(name: str, fields: list[Any], **more: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields, **more}


def fields(count: int, kind: object = "int", **more: object) -> list[dict[str, Any]]:
    return [{"name": f"f{number}", "type": kind, **more} for number in range(count)]


def enum_by_name() -> tuple[object, object]:
    enum = {"type": "enum", "name": "e", "symbols": [f"s{number}" for number in range(16_000)]}
    first = {"name": "first", "type": enum}
    added = {"name": "added", "type": "int", "default": 1}
    named = fields(4_000, "e")
    return record("r", [first, *named, added]), record("r", [first, *named])


def wide_records() -> tuple[object, object]:
    narrow = [record(f"r{number}", fields(1, default=1)) for number in range(2_500)]
    return record("wide", fields(6_000, default=1)), narrow


@pytest.mark.parametrize("case", [enum_by_name, wide_records])
def test_a_comparison_takes_a_bounded_time_whatever_the_schemas_are(case: Any):
    reader, writer = (schema(each) for each in case())

    with processor_time() as taken:
        reading_obstacle(reader, writer)
        reading_obstacle(writer, reader)

    assert taken.seconds < CPU_S_MAX


def test_a_large_enum_that_many_fields_name_is_compared_once():
    reader, writer = (schema(each) for each in enum_by_name())

    assert reading_obstacle(reader, writer) is None


def test_schema_comparisons_max_are_made_and_one_more_refused():
    reader = schema("int")
    at_limit = Schema(
        "s", SchemaKind.AVRO, json.dumps(["int"] * (SCHEMA_COMPARISONS_MAX - 1)).encode()
    )
    beyond = Schema("s", SchemaKind.AVRO, json.dumps(["int"] * SCHEMA_COMPARISONS_MAX).encode())

    assert reading_obstacle(reader, at_limit) is None
    assert reading_obstacle(reader, beyond) == "the schemas are too large to be compared"


def test_a_namespace_is_not_repeated_for_every_type_inside():
    """236 KB of them were 238 MB of names."""
    types = [{"type": "fixed", "name": f"t{number}", "size": 1} for number in range(2_000)]
    given = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    largest = schema(record("r", given, namespace="n" * 118_000))

    tracemalloc.start()
    try:
        check_schema(largest)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 50 * SCHEMA_BYTES_MAX


def test_a_success_that_rested_on_a_pair_that_failed_is_forgotten():
    """B reads B only if A reads A, which it does not."""
    b_read = record("B", [{"name": "a", "type": ["null", "A"]}])
    b_written = record("B", [{"name": "a", "type": "A"}])
    a_read = record("A", [{"name": "b", "type": b_read}, {"name": "x", "type": "int"}])
    a_written = record("A", [{"name": "b", "type": b_written}, {"name": "x", "type": "string"}])
    other_read = record("other", [{"name": "b", "type": "B"}])

    assert reading_obstacle(schema([a_read]), schema([a_written])) is not None
    assert reading_obstacle(schema([a_read, other_read]), schema([a_written])) is not None


def version_of_steps(steps: int) -> Schema:
    """Return a version that takes so many steps to be parsed and compared with an int."""
    size = (steps - 1) * SCHEMA_BYTES_PER_STEP
    assert len('"int"') < size <= SCHEMA_BYTES_MAX
    return Schema("s", SchemaKind.AVRO, b'"int"'.ljust(size))


@pytest.mark.parametrize("is_newcomer_reader", [True, False])
def test_schema_check_steps_max_are_made_for_all_versions_and_one_more_refused(
    is_newcomer_reader: bool,
):
    newcomer = schema("int")
    most = SCHEMA_BYTES_MAX // SCHEMA_BYTES_PER_STEP
    whole, rest = divmod(SCHEMA_CHECK_STEPS_MAX, most)

    def obstacle_to(last: Schema) -> str | None:
        budget = ComparisonBudget(newcomer)
        for version in (*(version_of_steps(most) for _ in range(whole)), last):
            pair = (newcomer, version) if is_newcomer_reader else (version, newcomer)
            obstacle = reading_obstacle(*pair, budget)
        return obstacle

    assert obstacle_to(version_of_steps(rest)) is None
    assert obstacle_to(version_of_steps(rest + 1)) == (
        "comparing the schema with all versions of the topic takes too long"
    )


def test_as_many_versions_as_there_may_be_of_an_ordinary_record_are_compared():
    newcomer = schema(record("r", fields(301, default=1)))
    earlier = schema(record("r", fields(300, default=1)))
    budget = ComparisonBudget(newcomer)
    strategy = SchemaCompatibility.FULL_TRANSITIVE

    for _ in range(SCHEMA_VERSIONS_MAX):
        assert not any(version_obstacles(newcomer, copy(earlier), strategy, budget))


def test_one_comparison_at_a_time_is_made_of_a_version_that_takes_two():
    newcomer = schema(record("r", fields(SCHEMA_BYTES_PER_STEP, default=1)))
    earlier = schema(record("r", fields(SCHEMA_BYTES_PER_STEP)))
    budget = ComparisonBudget(newcomer)

    problems = version_obstacles(newcomer, earlier, SchemaCompatibility.FULL, budget)

    left = [budget.steps_left]
    for problem in problems:
        assert problem is None
        left.append(budget.steps_left)
    # The newcomer is parsed, which costs nothing of it, the version is, and then each way.
    assert left[0] == left[1] > left[2] > left[3] > left[4]
    assert len(left) == 5
