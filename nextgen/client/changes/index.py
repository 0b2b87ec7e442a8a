"""An index of watches. It finds those that a change matches, at a cost independent of their number.

Watches are indexed by kind, then by name and by prefix. Prefixes are grouped by length, so a change
costs one look-up for its name and one for each distinct length of a prefix, not one per watch.
Shards match with this index, and so do their subscribers: an update lists the watches that it is
for only if its receiver cannot find them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from nextgen.client.log.event_keys import KEY_FIELDS, event_keys
from nextgen.kernel.governance.policies import PolicyLevel
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
)

WATCHED_KINDS = (
    KIND_TENANT,
    KIND_NAMESPACE,
    KIND_TOPIC,
    KIND_ASSIGNMENT,
    KIND_SCALABLE_TOPIC,
)
"""The kinds of objects that can be watched."""

_KIND_OF_TEN: dict[int, Kind] = {
    2: KIND_TENANT,
    3: KIND_NAMESPACE,
    4: KIND_TOPIC,
    6: KIND_ASSIGNMENT,
    20: KIND_SCALABLE_TOPIC,
    21: KIND_SCALABLE_TOPIC,
    22: KIND_SCALABLE_TOPIC,
    25: KIND_TOPIC,
}
"""Kinds by the tens of a payload's field number, which ``events.proto`` assigns by subject."""

_KIND_OF_SCOPE: dict[str, Kind] = {
    PolicyLevel.TENANT.value: KIND_TENANT,
    PolicyLevel.NAMESPACE.value: KIND_NAMESPACE,
    PolicyLevel.TOPIC.value: KIND_TOPIC,
}
"""Policies belong to an object of any kind: the ``scope`` of their event gives the kind."""

Change = tuple[Kind, str]
"""The object of an event: a kind and a name."""


def _watched_payloads() -> dict[str, tuple[Kind, str]]:
    payloads: dict[str, tuple[Kind, str]] = {}
    for field in Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        kind = _KIND_OF_TEN.get(field.number // 10)
        key_field = KEY_FIELDS.get(field.name)
        if kind is not None and key_field is not None:
            payloads[field.name] = (kind, key_field)
    return payloads


_PAYLOADS = _watched_payloads()


def changes_in(event: Event) -> Sequence[Change]:
    """Return the objects of ``event``: none of a kind that cannot be watched, two of a rename."""
    if event.HasField("topic_renamed"):
        return [(KIND_TOPIC, name) for name in event_keys(event)]
    change = change_of(event)
    return () if change is None else (change,)


def change_of(event: Event) -> Change | None:
    """Return the object of ``event``, None if it is of a kind that cannot be watched; of a rename
    the topic by its former name."""
    payload = event.WhichOneof("payload")
    if payload in ("policy_set", "policy_cleared"):
        said = getattr(event, payload)
        scope = _KIND_OF_SCOPE.get(said.scope)
        return None if scope is None else (scope, said.name)
    known = _PAYLOADS.get(payload) if payload is not None else None
    if payload is None or known is None:
        return None
    kind, key_field = known
    return kind, getattr(getattr(event, payload), key_field)


Owner = TypeVar("Owner", bound=Hashable)
Watch = TypeVar("Watch", bound=Hashable)

_Bucket = dict[Owner, dict[Watch, None]]
"""Watches by owner. One with a single watch is shared by all that watch's names, which nobody else
watches, and is never changed: a manager follows a hundred thousand names by ten watches."""


class _KindIndex(Generic[Owner, Watch]):
    """The watches of one kind."""

    __slots__ = ("names", "prefixes")

    def __init__(self) -> None:
        self.names: dict[str, _Bucket[Owner, Watch]] = {}
        self.prefixes: dict[int, dict[str, _Bucket[Owner, Watch]]] = {}
        """By length, then by the prefix itself."""


class ChangeIndex(Generic[Owner, Watch]):
    """Watches by filter. Each has an owner, so that one owner's watches can be found alone."""

    def __init__(self) -> None:
        self._kinds: dict[int, _KindIndex[Owner, Watch]] = {}

    def __bool__(self) -> bool:
        """Whether there is any watch. A kind's index stays when its last watch is removed."""
        return any(kind.names or kind.prefixes for kind in self._kinds.values())

    def add(
        self,
        owner: Owner,
        watch: Watch,
        kinds: Collection[Kind],
        *,
        prefix: str = "",
        names: Collection[str] = (),
    ) -> None:
        """Add ``watch`` for ``names``, or, without names, for all names with ``prefix``."""
        single: _Bucket[Owner, Watch] = {owner: {watch: None}}
        for kind in kinds:
            of_kind = self._kinds.setdefault(kind, _KindIndex())
            if not names:
                _add(of_kind.prefixes.setdefault(len(prefix), {}), prefix, single)
            for name in names:
                _add(of_kind.names, name, single)

    def discard(
        self,
        owner: Owner,
        watch: Watch,
        kinds: Collection[Kind],
        *,
        prefix: str = "",
        names: Collection[str] = (),
    ) -> None:
        """Undo an ``add`` with the same arguments."""
        for kind in kinds:
            of_kind = self._kinds.get(kind)
            if of_kind is None:
                continue
            if not names:
                by_prefix = of_kind.prefixes.get(len(prefix), {})
                _discard(by_prefix, prefix, owner, watch)
                if not by_prefix:
                    of_kind.prefixes.pop(len(prefix), None)
            for name in names:
                _discard(of_kind.names, name, owner, watch)

    def find(self, change: Change) -> Iterator[Mapping[Owner, Mapping[Watch, None]]]:
        """Yield the watches that match ``change``, by owner. An owner may occur more than once."""
        kind, name = change
        of_kind = self._kinds.get(kind)
        if of_kind is None:
            return
        named = of_kind.names.get(name)
        if named is not None:
            yield named
        for length, by_prefix in of_kind.prefixes.items():
            bucket = by_prefix.get(name[:length])
            if bucket is not None:
                yield bucket

    def may_find(self, kind: Kind, names: Iterable[str]) -> bool:
        """Return whether ``find`` may yield a watch for a change of one of ``names``.

        False only where it is certain; far cheaper than to find the watches of each.
        """
        of_kind = self._kinds.get(kind)
        if of_kind is None:
            return False
        return bool(of_kind.prefixes) or not of_kind.names.keys().isdisjoint(names)

    def find_of(self, owner: Owner, changes: Iterable[Change]) -> Iterator[Watch]:
        """Yield the watches of one owner that match one of ``changes``, each once."""
        seen: set[Watch] = set()
        for change in changes:
            for bucket in self.find(change):
                for watch in bucket.get(owner, ()):
                    if watch not in seen:
                        seen.add(watch)
                        yield watch


def _add(
    buckets: dict[str, _Bucket[Owner, Watch]], key: str, single: _Bucket[Owner, Watch]
) -> None:
    bucket = buckets.setdefault(key, single)
    if bucket is single:
        return
    if _is_single(bucket):
        bucket = buckets[key] = {owner: dict(watches) for owner, watches in bucket.items()}
    for owner, watches in single.items():
        bucket.setdefault(owner, {}).update(watches)


def _discard(
    buckets: dict[str, _Bucket[Owner, Watch]], key: str, owner: Owner, watch: Watch
) -> None:
    bucket = buckets.get(key)
    if bucket is None or watch not in bucket.get(owner, ()):
        return
    if _is_single(bucket):
        del buckets[key]
        return
    del bucket[owner][watch]
    if not bucket[owner]:
        del bucket[owner]


def _is_single(bucket: _Bucket[Owner, Watch]) -> bool:
    """Return whether it has one watch, and may be the bucket of other names as well."""
    return len(bucket) == 1 and all(len(watches) == 1 for watches in bucket.values())
