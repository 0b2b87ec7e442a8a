"""The scope of a public watch: a kind of objects, and a filter of their names.

The name of a tenant or a namespace belongs to the shard of its slot. A prefix concerns every shard,
and so does the name of a topic: one that was renamed stays in the shard that it was created in,
whatever its name is. The part of a scope that one shard serves is its *share*. If a new version of
the shard map changes a share, the watcher starts that share again with a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from nextgen.kernel.limits.cluster import TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.limits.stream import WATCH_NAMES_MAX
from nextgen.kernel.routing.names import (
    Domain,
    InvalidName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)
from nextgen.kernel.routing.slots import SlotTable

_SHOWN_CHARACTERS_MAX = 80
_PART = re.compile(r"[-=:.\w]*", re.ASCII)
_PARENT_AND_PART = re.compile(r"[-=:.\w]*|[-=:.\w]+/[-=:.\w]*", re.ASCII)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class WatchedKind(StrEnum):
    """The kinds of objects that can be watched by name."""

    TENANTS = "tenants"
    NAMESPACES = "namespaces"
    TOPICS = "topics"
    ASSIGNMENTS = "assignments"


_OF_TOPICS = frozenset({WatchedKind.TOPICS, WatchedKind.ASSIGNMENTS})


@dataclass(frozen=True, slots=True)
class WatchScope:
    """A kind and its names: those that begin with ``prefix``, or exactly ``names``.

    ``names`` are canonical, each once, with the keys that route them.
    """

    kind: WatchedKind
    prefix: str
    names: Mapping[str, str]
    """Name → routing key. Empty: it is a watch by prefix."""

    def shares(self, table: SlotTable, digests: Mapping[int, bytes]) -> dict[int, Share]:
        """Return the share of each shard; shards without a share are left out.

        ``digests`` are the ``slots_digests`` of the same table.
        """
        if not self.names or self.kind in _OF_TOPICS:
            names = tuple(self.names)
            return {shard_id: Share(names, digest) for shard_id, digest in digests.items()}
        by_shard: dict[int, list[str]] = {}
        for name, key in self.names.items():
            by_shard.setdefault(table.shard_for_key(key), []).append(name)
        return {shard_id: Share(tuple(names), b"") for shard_id, names in by_shard.items()}

    def selects(self, name: str) -> bool:
        """Return whether the watch is about the object of a canonical name."""
        return name in self.names if self.names else name.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a scope that one shard serves. Equal shares use one stream."""

    names: tuple[str, ...]
    """Empty: all that have the prefix."""

    slots_digest: bytes
    """Digest of the shard's slots; empty for names that are this shard's by their own slots."""


def slots_digests(table: SlotTable, shard_ids: Iterable[int]) -> dict[int, bytes]:
    """Return for each shard a digest of the slots that it has; it may have none."""
    hashers = {shard_id: blake2b(digest_size=16) for shard_id in shard_ids}
    for slot, owner in enumerate(table.owners):
        if owner in hashers:
            hashers[owner].update(slot.to_bytes(2, "big"))
    return {shard_id: hasher.digest() for shard_id, hasher in hashers.items()}


def parse_scope(kind: WatchedKind, prefix: str, names: Sequence[str]) -> WatchScope:
    """Return the scope of a request.

    Raises:
        InvalidName: There are both a prefix and names, the prefix begins no name of this kind, a
        name is malformed, or there are more than ``WATCH_NAMES_MAX``.
    """
    if prefix and names:
        raise InvalidName("a watch has a prefix or names, not both")
    if len(names) > WATCH_NAMES_MAX:
        raise InvalidName(f"a watch has {len(names)} names, at most {WATCH_NAMES_MAX} are allowed")
    check_prefix(kind, prefix)
    keys = dict(_KEYED[kind](name) for name in names)
    return WatchScope(kind, prefix, keys)


def check_prefix(kind: WatchedKind, prefix: str) -> None:
    """Check that names of this kind can begin with ``prefix``; all begin with "".

    Raises:
        InvalidName: None can.
    """
    if len(prefix) > TOPIC_TEXT_CHARACTERS_MAX:
        raise InvalidName(
            f"a prefix has {len(prefix)} characters, at most {TOPIC_TEXT_CHARACTERS_MAX} "
            "are allowed"
        )
    if not prefix:
        return
    match kind:
        case WatchedKind.TENANTS:
            is_possible = _PART.fullmatch(prefix) is not None
        case WatchedKind.NAMESPACES:
            is_possible = _PARENT_AND_PART.fullmatch(prefix) is not None
        case WatchedKind.TOPICS | WatchedKind.ASSIGNMENTS:
            is_possible = _can_begin_a_topic(prefix)
    if not is_possible:
        raise InvalidName(f"no name of {kind.value} begins with {_shown(prefix)}")


def _can_begin_a_topic(prefix: str) -> bool:
    scheme, separator, rest = prefix.partition("://")
    if not separator:
        return any(f"{domain.value}://".startswith(prefix) for domain in Domain)
    if scheme not in set(Domain):
        return False
    # Tenant and namespace have a narrow alphabet, local names a wide one.
    tenant, _, behind = rest.partition("/")
    namespace, _, local = behind.partition("/")
    return (
        _PART.fullmatch(tenant) is not None
        and _PART.fullmatch(namespace) is not None
        and not ((behind or rest.endswith("/")) and not tenant)
        and not (local and not namespace)
        and _UNPRINTABLE.search(local) is None
    )


def _keyed_tenant(text: str) -> tuple[str, str]:
    name = parse_tenant(text)
    return name, name


def _keyed_namespace(text: str) -> tuple[str, str]:
    name = parse_namespace(text).text
    return name, name


def _keyed_topic(text: str) -> tuple[str, str]:
    name = parse_topic(text)
    if name.text != name.base_text:
        raise InvalidName(
            f"{_shown(text)} names a part of a topic; its assignment can be watched, "
            "and the topic by its own name"
        )
    return name.text, name.routing_key


def _keyed_unit(text: str) -> tuple[str, str]:
    name = parse_topic(text)
    return name.text, name.routing_key


_KEYED: Mapping[WatchedKind, Callable[[str], tuple[str, str]]] = {
    WatchedKind.TENANTS: _keyed_tenant,
    WatchedKind.NAMESPACES: _keyed_namespace,
    WatchedKind.TOPICS: _keyed_topic,
    WatchedKind.ASSIGNMENTS: _keyed_unit,
}


def _shown(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return ascii(text)
    return f"{text[:_SHOWN_CHARACTERS_MAX]!a}..."
