"""Each strategy against each way in which a schema can go with an earlier one."""

import json

import pytest

from brokers.domain.schemas.compatibility import ComparisonBudget
from brokers.domain.schemas.schema import Schema, SchemaKind
from brokers.domain.schemas.strategies import (
    consumer_obstacles,
    is_with_all,
    reads_all,
    version_obstacles,
)
from nextgen.kernel.governance.policies import SchemaCompatibility


def record(*fields: dict[str, object]) -> Schema:
    content = {"type": "record", "name": "Order", "fields": list(fields)}
    return Schema("orders", SchemaKind.AVRO, json.dumps(content).encode())


ID = {"name": "id", "type": "long"}
NAME = {"name": "name", "type": "string"}
NOTE = {"name": "note", "type": "string", "default": ""}

READS_OLD = (record(ID), record(ID, NAME))
"""A newcomer that reads what the earlier one wrote, and is not read by it."""
IS_READ_BY_OLD = (record(ID, NAME), record(ID))
BOTH = (record(ID, NOTE), record(ID))
NEITHER = (record(ID, NAME), record(ID, {"name": "other", "type": "string"}))

ALWAYS = SchemaCompatibility.ALWAYS_COMPATIBLE
NEVER = SchemaCompatibility.ALWAYS_INCOMPATIBLE
BACKWARD = (SchemaCompatibility.BACKWARD, SchemaCompatibility.BACKWARD_TRANSITIVE)
FORWARD = (SchemaCompatibility.FORWARD, SchemaCompatibility.FORWARD_TRANSITIVE)
FULL = (SchemaCompatibility.FULL, SchemaCompatibility.FULL_TRANSITIVE)


@pytest.mark.parametrize(
    ("pair", "strategies"),
    [
        (READS_OLD, {ALWAYS, *BACKWARD}),
        (IS_READ_BY_OLD, {ALWAYS, *FORWARD}),
        (BOTH, {ALWAYS, *BACKWARD, *FORWARD, *FULL}),
        (NEITHER, {ALWAYS}),
    ],
)
def test_a_version_may_follow_under_exactly_these_strategies(
    pair: tuple[Schema, Schema], strategies: set[SchemaCompatibility]
):
    allowed = {
        each
        for each in SchemaCompatibility
        if not any(version_obstacles(*pair, each, ComparisonBudget(pair[0])))
    }

    assert allowed == strategies


def test_a_consumer_must_read_what_was_written_under_any_strategy_but_one():
    unable, writer = IS_READ_BY_OLD

    def refused(reader: Schema, written: Schema) -> set[SchemaCompatibility]:
        return {
            each
            for each in SchemaCompatibility
            if any(consumer_obstacles(reader, written, each, ComparisonBudget(reader)))
        }

    assert refused(unable, writer) == {*SchemaCompatibility} - {ALWAYS}
    assert refused(writer, unable) == set()


def test_transitive_ones_ask_about_all_versions():
    assert {each for each in SchemaCompatibility if is_with_all(each)} == {
        BACKWARD[1],
        FORWARD[1],
        FULL[1],
    }
    assert {each for each in SchemaCompatibility if reads_all(each)} == {BACKWARD[1], FULL[1]}
