"""Filters of topics by their properties: the topics that have all of some keys with these values.

Watches of scalable topics, listings over each protocol and the command line share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nextgen.kernel.limits.cluster import PROPERTIES_BYTES_MAX, PROPERTIES_MAX

_SHOWN_CHARACTERS = 80


class InvalidFilter(ValueError):
    """No topic can have such properties. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class PropertyFilter:
    """Properties that a topic must have. Two with the same properties are equal."""

    pairs: tuple[tuple[str, str], ...] = ()
    """Sorted, with each key once. Empty: every topic matches."""

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a topic with ``properties`` is described."""
        return all(properties.get(key) == value for key, value in self.pairs)

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of all keys and values."""
        return _size_of(self.pairs)


EVERY_TOPIC = PropertyFilter()


def property_filter(pairs: Iterable[tuple[str, str]]) -> PropertyFilter:
    """Return the filter with these keys and values.

    Raises:
        InvalidFilter: They exceed the properties of a topic, or a key has two values.
    """
    wanted: dict[str, str] = {}
    for number, (key, value) in enumerate(pairs):
        if number >= PROPERTIES_MAX:
            raise InvalidFilter(f"a filter has at most {PROPERTIES_MAX} properties, like a topic")
        if wanted.setdefault(key, value) != value:
            raise InvalidFilter(f"property {_shown(key)} has two values, no topic has both")
    size_bytes = _size_of(wanted.items())
    if size_bytes > PROPERTIES_BYTES_MAX:
        raise InvalidFilter(
            f"the properties of the filter have {size_bytes} bytes, those of a topic at most "
            f"{PROPERTIES_BYTES_MAX}"
        )
    return PropertyFilter(tuple(sorted(wanted.items())))


def parse_filter(texts: Iterable[str]) -> PropertyFilter:
    """Return the filter that is written as ``key=value`` texts.

    Raises:
        InvalidFilter: A text is no such pair, or see ``property_filter``.
    """
    return property_filter(map(_pair_of, texts))


def _pair_of(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidFilter(f"property {_shown(text)} is no key=value")
    return key, value


def _size_of(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for pair in pairs for text in pair)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
