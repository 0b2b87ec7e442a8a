"""One table of columns between a dataclass and the rows of a view, serving both directions.

Compiled where it is made, like the field maps of messages (ADR 0067): a fold makes a row of each
state that it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar

from sqlalchemy import Table

from nextgen.client.wire.fields import Conversion

Value = TypeVar("Value")


class RowFields(Generic[Value]):
    """``Value``, a dataclass, as rows of ``table``, which has a column for each of its fields.

    ``converted`` has the fields whose value is stored in another form, ``nullable`` the value of
    those that are NULL while they are empty. ``inside`` has the fields that are dataclasses with a
    column for each of their own fields.

    A column or a field that the other side lacks is an error at import.
    """

    def __init__(
        self,
        value: type[Value],
        table: Table,
        *,
        converted: Mapping[str, Conversion] | None = None,
        nullable: Mapping[str, Any] | None = None,
        inside: Mapping[str, type] | None = None,
    ) -> None:
        converted, nullable, inside = converted or {}, nullable or {}, inside or {}
        columns = [column.name for column in table.columns]
        names = [field.name for field in fields(value)]  # type: ignore[arg-type]
        parts_of = {name: [part.name for part in fields(each)] for name, each in inside.items()}
        stored = {part for name in names for part in parts_of.get(name, [name])}
        assert stored == {*columns}, f"{value.__name__} and {table.name} differ in fields"
        place = {column: f"row[{index}]" for index, column in enumerate(columns)}
        scope: dict[str, Any] = {"Value": value}
        writes: dict[str, str] = {}
        reads = []
        for name in names:
            if name in inside:
                scope[f"Inside_{name}"] = inside[name]
                writes |= {part: f"value.{name}.{part}" for part in parts_of[name]}
                parts = ", ".join(place[part] for part in parts_of[name])
                reads.append(f"Inside_{name}({parts})")
                continue
            write, read = f"value.{name}", place[name]
            if name in converted:
                scope[f"write_{name}"], scope[f"read_{name}"] = converted[name]
                write, read = f"write_{name}({write})", f"read_{name}({read})"
            if name in nullable:
                scope[f"empty_{name}"] = nullable[name]
                write = f"{write} if value.{name} else None"
                read = f"{read} if {place[name]} is not None else empty_{name}"
            writes[name] = write
            reads.append(read)
        to_row = f"lambda _, value: ({', '.join(writes[column] for column in columns)},)"
        # The text is made of names of fields and columns alone, which are identifiers.
        self.to_row: Callable[[str, Value], tuple[Any, ...]] = eval(to_row, scope)
        self.from_row: Callable[[tuple[Any, ...]], Value] = eval(
            f"lambda row: Value({', '.join(reads)})", scope
        )
