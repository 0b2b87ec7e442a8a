"""Patterns: schemes, what is matched, what is refused, and that no pattern takes long."""

from __future__ import annotations

import time

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import TOPIC_LOCAL_NAME_BYTES_MAX
from nextgen.kernel.limits.listing import (
    PATTERN_PROGRAM_BYTES_MAX,
    PATTERNS_COMPILED_MAX,
    SUBSCRIPTION_PATTERN_CHARACTERS_MAX,
)
from nextgen.pulsar.topic_lists import pattern as module
from nextgen.pulsar.topic_lists.pattern import (
    InvalidPattern,
    UnsupportedPattern,
    compile_pattern,
    java_length,
    without_scheme,
)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("persistent://t/n/a.*", "persistent://t/n/abc", True),
        ("persistent://t/n/a.*", "non-persistent://t/n/abc", True),
        ("t/n/a.*", "persistent://t/n/abc", True),
        ("t/n/a.*", "persistent://t/n/xabc", False),
        ("t/n/a", "persistent://t/n/ab", False),
        ("n/a", "persistent://t/n/a", False),
        ("^persistent://t/n/a$", "persistent://t/n/a", True),
        ("t/n/a", "persistent://t/n/a-partition-3", True),
        ("t/n/a-partition-3", "persistent://t/n/a-partition-3", False),
        ("t/n/a-partition-03", "persistent://t/n/a-partition-03", True),
        ("t/n/a-partition-9999999999", "persistent://t/n/a-partition-9999999999", True),
        (".*", "persistent://t/n/anything-partition-0", True),
        ("persistent://.*", "persistent://t/n/x", True),
        ("t/n/(a|b)[0-9]{2}", "persistent://t/n/b07", True),
        ("(?i)T/N/A", "persistent://t/n/a", True),
        ("t/n/.", "persistent://t/n/\U0001f600", True),
        (r"t/n/\Qa.b\E", "persistent://t/n/a.b", True),
        (r"t/n/\Qa.b\E", "persistent://t/n/axb", False),
    ],
)
def test_a_pattern_describes_the_whole_path_without_scheme_and_partition(
    pattern: str, name: str, expected: bool
) -> None:
    assert compile_pattern(pattern).matches(name) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("persistent://t/n/a", "t/n/a"),
        ("non-persistent://t/n/a", "t/n/a"),
        ("^persistent://t/n/a", "^t/n/a"),
        ("^non-persistent://t/n/a", "^t/n/a"),
        ("t/n/a", "t/n/a"),
        ("", ""),
    ],
)
def test_the_scheme_is_cut_off(pattern: str, expected: str) -> None:
    assert without_scheme(pattern) == expected


@pytest.mark.parametrize(
    "pattern", ["topic://t/n/a", "http://x", "://a", "(persistent|non-persistent)://t/n/a"]
)
def test_another_scheme_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="scheme"):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["t/n/[a", "t/n/(a", "*a", "t/n/a\\", "a)", "(?P<a"])
def test_what_no_engine_compiles_is_invalid(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match="does not compile"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)b", "(?!a).*", "(?<=a)b", "(?<!a)b", r"(a)\1", "a++", "a{2000}", r"\h", r"\p{IsLatin}"],
)
def test_what_only_java_compiles_is_not_evaluated(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern, match="not evaluated"):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(x+x+)+y", "(a|a)*b", "(.*)*c", "(?:a?){200}a{200}", "(?:.*a){25}"]
)
def test_patterns_that_explode_by_backtracking_take_no_time(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    began_at = time.process_time()
    for letter in ("a", "x", "\u00e9"):
        compiled.matches("persistent://t/n/" + letter * (TOPIC_LOCAL_NAME_BYTES_MAX // 2))
    # Milliseconds; by backtracking it would be longer than the universe has lasted.
    assert time.process_time() - began_at < 1.0


def test_a_compiled_pattern_has_at_most_pattern_program_bytes_max() -> None:
    # RE2 grants two thirds of the memory to the program, 8 bytes an instruction. A letter takes
    # one instruction; RE2 adds some of its own.
    instructions = PATTERN_PROGRAM_BYTES_MAX * 2 // 3 // 8
    compile_pattern(f"(?:aaa){{{instructions // 3 - 30}}}")
    with pytest.raises(UnsupportedPattern, match="too large"):
        compile_pattern(f"(?:aaa){{{instructions // 3 + 1}}}")


def test_patterns_are_compiled_up_to_subscription_pattern_characters_max() -> None:
    longest = "a" * SUBSCRIPTION_PATTERN_CHARACTERS_MAX
    assert compile_pattern(longest).text == longest
    with pytest.raises(UnsupportedPattern, match="characters"):
        compile_pattern("a" * (SUBSCRIPTION_PATTERN_CHARACTERS_MAX + 1))


def test_patterns_are_kept_up_to_patterns_compiled_max() -> None:
    compile_pattern.cache_clear()
    for number in range(PATTERNS_COMPILED_MAX):
        compile_pattern(f"t/n/{number}")
    first = compile_pattern("t/n/0")
    assert compile_pattern("t/n/0") is first
    for number in range(PATTERNS_COMPILED_MAX + 1):
        compile_pattern(f"t/m/{number}")
    assert compile_pattern.cache_info().currsize == PATTERNS_COMPILED_MAX
    assert compile_pattern("t/n/0") is not first
    assert compile_pattern("t/n/0") == first


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("t/n/orders.*", "t/n/orders"),
        ("^t/n/orders-[0-9]+", "t/n/orders-"),
        ("persistent://t/n/a(b|c)", "t/n/a"),
        ("t/n/only", "t/n/only"),
        (".*", ""),
        ("(t/n/a|u/n/b)", ""),
        ("(?i)t/n/a", ""),
        ("t/n/\U0001f600.*", "t/n/\U0001f600"),
        ("t/n/[\U0001f600\U0001f601]", "t/n/"),
        ("t/n/a*b", "t/n/"),
        ("t/n/a?", "t/n/"),
    ],
)
def test_the_literal_beginning_is_known(pattern: str, prefix: str) -> None:
    assert compile_pattern(pattern).prefix == prefix


@pytest.mark.parametrize(
    ("pattern", "is_literal"),
    [
        ("t/n/a-.*", True),
        (".*", True),
        ("t/n/a-.", False),
        ("t/n/a-.*b", False),
        ("t/n/a..*", False),
        ("t/n/a?.*", False),
        ("t/n/(a|b).*", False),
        ("^t/n/a.*", False),
        ("(?i)t/n/a.*", False),
    ],
)
def test_a_literal_beginning_with_anything_behind_needs_no_engine(pattern, is_literal) -> None:
    compiled = compile_pattern(pattern)
    engine = re2.compile(compiled.text)

    assert (compiled._matches is None) == is_literal
    assert compiled.matches_everything == (pattern == ".*")
    for path in (
        "t/n/a-",
        "t/n/a-x",
        "t/n/a",
        "t/n/ab",
        "t/n/b-x",
        "t/n/A-x",
        "t/n2/a-x",
        "t/n/a-xb",
    ):
        assert compiled.matches_path(path) == (engine.fullmatch(path) is not None)
        assert compiled.matches(f"persistent://{path}-partition-3") == compiled.matches_path(path)


def test_pattern_prefix_bytes_max_is_enough_for_the_longest_pattern(monkeypatch) -> None:
    """Before, there was none beyond some 30 characters."""
    longest = "t/n/" + "a" * (SUBSCRIPTION_PATTERN_CHARACTERS_MAX - len("t/n/.*"))
    assert compile_pattern(f"{longest}.*").prefix == longest
    monkeypatch.setattr(module, "PATTERN_PREFIX_BYTES_MAX", PATTERN_PROGRAM_BYTES_MAX)
    assert compile_pattern(f"{longest[:-1]}.*").prefix == ""


@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "t/n/", ".", "a*", "b+", "(a|b)", "[a-c]", "a?", "$", "^", "\\b", "(|a)"]
        ),
        max_size=6,
    ).map("".join),
    st.text(alphabet="abct/n", max_size=8),
)
def test_what_matches_begins_with_the_prefix(pattern: str, path: str) -> None:
    compiled = compile_pattern(pattern)
    if compiled.matches_path(path):
        assert path.startswith(compiled.prefix)


def test_java_counts_code_units() -> None:
    assert java_length("abc") == 3
    assert java_length("\uffff\U00010000") == 3
