"""How values are shown to people."""

from __future__ import annotations

import pytest

from pipelines.reporting.value_text import value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (False, "no"),
        (1_234_567, "1,234,567"),
        (1234.5, "1,234.500"),
        ("orders", "orders"),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: object, text: str) -> None:
    assert value_text(value) == text
