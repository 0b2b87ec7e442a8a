"""Patterns of topic names: what a client wrote, compiled once by an engine without backtracking.

A pattern describes ``tenant/namespace/topic`` whole: without the scheme, which is cut off, and
without a partition's suffix. RE2 reads it (ADR 0096). What Java's engine knows besides, such as
look-around and back-references, needs backtracking and is not evaluated here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2

from nextgen.kernel.limits.listing import (
    PATTERN_PREFIX_BYTES_MAX,
    PATTERN_PROGRAM_BYTES_MAX,
    PATTERNS_COMPILED_MAX,
    SUBSCRIPTION_PATTERN_CHARACTERS_MAX,
)
from nextgen.kernel.routing.names import PARTITION_SUFFIX, parse_topic

EVERYTHING = ".*"
SCHEME_SEPARATOR = "://"

_SCHEMES = ("non-persistent", "persistent")
_PREFIX_BYTES_MAX = 4 * SUBSCRIPTION_PATTERN_CHARACTERS_MAX

_BEYOND_RE2 = (
    "invalid perl operator",
    "invalid escape sequence",
    "bad repetition operator",
    "invalid repetition size",
    "invalid character class",
    "pattern too large",
)
"""How RE2's messages begin about patterns that another engine might understand."""


class InvalidPattern(ValueError):
    """No engine compiles the text, or it names a scheme that patterns cannot have."""


class UnsupportedPattern(ValueError):
    """Only a backtracking engine could evaluate the pattern, or one without a bound of memory."""


class TopicPattern:
    """A compiled pattern. Two are equal if they were written alike, apart from the scheme."""

    __slots__ = ("_matches", "prefix", "text")

    def __init__(self, text: str, matches: Callable[[bytes], Any] | None, prefix: str) -> None:
        self.text = text
        """The pattern without its scheme."""
        self._matches = matches
        """None: the literal beginning is all that there is to compare."""
        self.prefix = prefix
        """All matching ``tenant/namespace/topic`` begin with it. May be empty."""

    def __repr__(self) -> str:
        return f"<TopicPattern {self.text!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPattern) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def matches_everything(self) -> bool:
        return self._matches is None and not self.prefix

    def matches(self, name: str) -> bool:
        """Return whether the pattern describes the topic with this full canonical name."""
        if self.matches_everything:
            return True
        if PARTITION_SUFFIX in name:
            return self.matches_path(parse_topic(name).routing_key)
        return self.matches_path(name.partition(SCHEME_SEPARATOR)[2])

    def matches_path(self, path: str) -> bool:
        """Return whether it describes ``tenant/namespace/topic``, which has no partition suffix."""
        if self._matches is None:
            return path.startswith(self.prefix)
        return self._matches(path.encode()) is not None


def java_length(text: str) -> int:
    """Return the length of ``text`` as Java counts it: in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2  # Quick for megabytes, too.


def without_scheme(pattern: str) -> str:
    """Return the pattern without ``persistent://`` or ``non-persistent://``.

    Something may stand before the scheme, most often ``^``: it stays.

    Raises:
        InvalidPattern: The scheme is another one.
    """
    head, separator, rest = pattern.partition(SCHEME_SEPARATOR)
    if not separator:
        return pattern
    for scheme in _SCHEMES:
        if head.endswith(scheme):
            return head.removesuffix(scheme) + rest
    raise InvalidPattern(
        f"the pattern has the scheme {head[:80]!r}, it may have persistent or non-persistent"
    )


@lru_cache(maxsize=PATTERNS_COMPILED_MAX)
def compile_pattern(pattern: str) -> TopicPattern:
    """Return the pattern that a client sent, with or without a scheme, compiled.

    The caller has checked its length against the setting.

    Raises:
        InvalidPattern: It has an error, or another scheme.
        UnsupportedPattern: It is none of those that are matched in linear time.
    """
    text = without_scheme(pattern)
    if text == EVERYTHING:
        return TopicPattern(text, None, "")
    if java_length(text) > SUBSCRIPTION_PATTERN_CHARACTERS_MAX:
        raise UnsupportedPattern(
            f"the pattern has {java_length(text)} characters, "
            f"at most {SUBSCRIPTION_PATTERN_CHARACTERS_MAX} are compiled"
        )
    try:
        # As bytes, which halves the time of a match.
        compiled = re2.compile(text.encode(), _options(PATTERN_PROGRAM_BYTES_MAX))
    except re2.error as error:
        why = _message(error)
        if why.startswith(_BEYOND_RE2):
            raise UnsupportedPattern(f"the pattern is not evaluated here: {why}") from error
        raise InvalidPattern(f"the pattern does not compile: {why}") from error
    prefix = _prefix(text)
    is_literal = text == prefix + EVERYTHING
    return TopicPattern(text, None if is_literal else compiled.fullmatch, prefix)


def _options(bytes_max: int) -> Any:
    options = re2.Options()
    options.max_mem = bytes_max
    options.log_errors = False
    options.never_capture = True
    return options


def _message(error: Exception) -> str:
    given = error.args[0] if error.args else ""
    return given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)


def _prefix(text: str) -> str:
    """Return the literal beginning of everything that the pattern matches. It compiles."""
    try:
        # It takes a state of the automaton for each character: more than matching may have.
        compiled = re2.compile(text.encode(), _options(PATTERN_PREFIX_BYTES_MAX))
        least, greatest = compiled.possiblematchrange(_PREFIX_BYTES_MAX)
    except re2.error:
        return ""
    common = 0
    for one, other in zip(least, greatest, strict=False):
        if one != other:
            break
        common += 1
    # Cut within a character, the bytes are no text yet.
    return bytes(least[:common]).decode("utf-8", "ignore")
