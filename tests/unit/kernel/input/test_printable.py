import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.input.printable import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "a"),
        ("[/foo] :smile: é 日本", "[/foo] :smile: é 日本"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31m\x7f\x9b", r"\x1b[31m\x7f\x9b"),
        ("\u202egpj.exe\u2066\u200f", r"\u202egpj.exe\u2066\u200f"),
        ("\ud800\U000e0001", r"\ud800\U000e0001"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_no_character_is_left_that_is_not_shown_as_itself(text: str) -> None:
    shown = printable(text)

    assert all(unicodedata.category(one)[0] not in "C" for one in shown)
    assert shown.isprintable()


@given(st.recursive(st.text(st.characters()), lambda inner: st.lists(inner, max_size=3)))
def test_json_means_the_same_and_steers_nothing(value: object) -> None:
    document = printable_json(json.dumps(value, ensure_ascii=False))

    assert document.isprintable()
    assert json.loads(document) == value
