"""A table of columns is the same in both directions, and covers all of both sides."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text

from shards.projections.row_fields import RowFields


@dataclass(frozen=True, slots=True)
class Place:
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Node:
    tags: tuple[str, ...]
    name: str
    place: Place


NODES = Table(
    "nodes",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("host", Text),
    Column("port", Integer),
    Column("tags", Text),
)
COMMAS = (",".join, lambda stored: tuple(stored.split(",")))
FIELDS = RowFields(
    Node, NODES, converted={"tags": COMMAS}, nullable={"tags": ()}, inside={"place": Place}
)


def test_row_has_the_order_of_the_columns_and_value_that_of_the_fields():
    node = Node(("a", "b"), "n-1", Place("h", 7))

    row = FIELDS.to_row("", node)

    assert row == ("n-1", "h", 7, "a,b")
    assert FIELDS.from_row(row) == node


def test_empty_value_of_a_nullable_field_is_stored_as_null():
    node = Node((), "n-1", Place("h", 7))

    row = FIELDS.to_row("", node)

    assert row == ("n-1", "h", 7, None)
    assert FIELDS.from_row(row) == node


@pytest.mark.parametrize("value", [Place, Node], ids=["more columns", "more fields"])
def test_column_or_field_that_the_other_side_lacks_is_refused(value):
    with pytest.raises(AssertionError, match=f"{value.__name__} and nodes differ in fields"):
        RowFields(value, NODES)
