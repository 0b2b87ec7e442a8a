import pytest

from nextgen.kernel.input.json_fields import as_count, as_text, parse_json


def test_a_document_is_read() -> None:
    content = '{"a": [1, 2.5, "é", "\\ud83d\\ude00", null, true], "b": {"a": 1}}'

    expected = {"a": [1, 2.5, "é", "\U0001f600", None, True], "b": {"a": 1}}
    assert parse_json(content) == parse_json(content.encode()) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff", "can't decode"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e400]", "1e400 is no number"),
        ("9" * 5_000, "integer string conversion"),
        ('{"b": {"a": 1, "a": 1}}', "it says 'a' twice"),
        ('["\\ud800"]', "surrogates not allowed"),
        ('{"\\uDC00": 1}', "surrogates not allowed"),
    ],
)
def test_whatever_is_wrong_is_a_value_error(content: bytes | str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(content)


@pytest.mark.parametrize("value", [True, -1, 1.0, "1", None])
def test_a_count_is_a_whole_number_from_0_on(value: object) -> None:
    assert as_count(0) == 0
    with pytest.raises(ValueError, match="is not a count"):
        as_count(value)


def test_a_text_is_a_text() -> None:
    assert as_text("a") == "a"
    with pytest.raises(TypeError, match="1 is not a text"):
        as_text(1)
