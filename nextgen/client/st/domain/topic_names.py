"""The scalable topics of a namespace as a server says, by whole lists and by changes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nextgen.kernel.routing.names import Domain, InvalidName, NamespaceName, parse_topic
from nextgen.pulsar.topic_lists.hash import topics_hash


@dataclass(frozen=True, slots=True)
class NamesChange:
    """Topics that went, and then topics that came. One that was made anew is in both."""

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class TopicNames:
    """The names of one namespace. What is no name of a scalable topic there is no topic here, but
    counts for the hash, with which the server compares its list."""

    def __init__(self, namespace: NamespaceName) -> None:
        self._namespace = namespace
        self._names: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    @property
    def hash(self) -> str:
        return topics_hash(self._names)

    def replace(self, names: Iterable[str]) -> NamesChange:
        """Take a whole list."""
        present = set(names)
        change = self._change(self._names - present, present - self._names)
        self._names = present
        return change

    def apply(self, removed: Iterable[str], added: Iterable[str]) -> NamesChange:
        """Take a change: what is removed goes before what is added comes."""
        gone = self._names.intersection(removed)
        new = set(added)
        change = self._change(gone, new - (self._names - gone))
        self._names = (self._names - gone) | new
        return change

    def _change(self, removed: set[str], added: set[str]) -> NamesChange:
        return NamesChange(
            tuple(sorted(filter(self._is_topic, removed))),
            tuple(sorted(filter(self._is_topic, added))),
        )

    def _is_topic(self, text: str) -> bool:
        try:
            name = parse_topic(text)
        except InvalidName:
            return False
        return (
            name.domain is Domain.TOPIC
            and name.namespace_name == self._namespace
            and name.text == text
        )
