"""Which topics of a namespace a list has: the classic ones of a pattern, or scalable ones."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from nextgen.client.topic_lists.topic_changes import TopicChange
from nextgen.kernel.limits.listing import LIST_PREFIX_BYTES_MAX
from nextgen.kernel.routing.names import PARTITION_SUFFIX, Domain, NamespaceName
from nextgen.kernel.routing.property_filter import EVERY_TOPIC, PropertyFilter
from nextgen.pulsar.topic_lists.pattern import SCHEME_SEPARATOR, TopicPattern


class Selection(Protocol):
    """A rule by which one domain's topics belong to a list."""

    @property
    def key(self) -> Hashable:
        """Lists of a namespace with the same key are one list."""

    @property
    def domain(self) -> Domain: ...

    @property
    def beginning(self) -> str:
        """The beginning of the names of all topics that match, scheme included."""

    @property
    def local_prefix(self) -> str:
        """What the local names of all matching topics begin with; "" if that is not known."""

    @property
    def size_bytes(self) -> int:
        """Memory that it takes beyond that of a short one."""

    @property
    def properties(self) -> PropertyFilter:
        """The properties that each topic of the list has."""

    def matches(self, base_name: str) -> bool:
        """Return whether a topic of this name may match."""

    def narrowed(self, change: TopicChange) -> TopicChange | None:
        """Return what a change of a topic whose name matches does to the list."""

    def routing_key(self, name: str) -> str:
        """Return the hashed text of a name that the list has."""


class PatternSelection:
    """The persistent topics that a pattern describes."""

    domain = Domain.PERSISTENT
    properties = EVERY_TOPIC
    size_bytes = 0

    def __init__(self, namespace: NamespaceName, pattern: TopicPattern) -> None:
        self.key: Hashable = (Domain.PERSISTENT, pattern.text)
        self._scheme = f"{Domain.PERSISTENT}{SCHEME_SEPARATOR}"
        self.beginning = self._scheme + pattern.prefix
        self.local_prefix = _local_prefix(namespace, pattern)
        self._pattern = pattern

    def __repr__(self) -> str:
        return repr(self._pattern.text)

    def matches(self, base_name: str) -> bool:
        return base_name.startswith(self.beginning) and self._pattern.matches_path(
            base_name.removeprefix(self._scheme)
        )

    def narrowed(self, change: TopicChange) -> TopicChange | None:
        return change

    def routing_key(self, name: str) -> str:
        base = name
        if PARTITION_SUFFIX in name:
            head, _, number = name.rpartition(PARTITION_SUFFIX)
            base = head if number.isdecimal() else name
        return base.removeprefix(self._scheme)


class PropertySelection:
    """The scalable topics that have some properties.

    Nothing is kept of the properties of others: a change of a topic's properties brings all of
    them, so it tells whether the topic belongs to the list from then on.
    """

    domain = Domain.TOPIC
    local_prefix = ""

    def __init__(self, namespace: NamespaceName, properties: PropertyFilter) -> None:
        self.key: Hashable = (Domain.TOPIC, properties)
        self.size_bytes = properties.size_bytes
        self._scheme = f"{Domain.TOPIC}{SCHEME_SEPARATOR}"
        self.beginning = f"{self._scheme}{namespace.text}/"
        self.properties = properties

    def __repr__(self) -> str:
        return repr(self.properties.pairs)

    def matches(self, base_name: str) -> bool:
        return base_name.startswith(self.beginning)

    def narrowed(self, change: TopicChange) -> TopicChange | None:
        if change.properties is None:
            return change
        if self.properties.matches(change.properties):
            return change._replace(created=(change.base_name,), deleted=())
        return change._replace(created=(), deleted=(change.base_name,))

    def routing_key(self, name: str) -> str:
        return name.removeprefix(self._scheme)


def _local_prefix(namespace: NamespaceName, pattern: TopicPattern) -> str:
    parent, slash, local = pattern.prefix.rpartition("/")
    if not slash or parent != namespace.text or len(local.encode()) > LIST_PREFIX_BYTES_MAX:
        return ""
    return local
