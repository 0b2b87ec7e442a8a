"""Names that wait for a request to one shard, with a turn for each tenant.

    many names of a tenant ──▶ requests of its own, never all that may be in flight few names of
    others ──▶ share a request, and always find one

The slowest name of a request delays the others, and a name without a broker that has room is slow.
So a tenant with more than ``LOOKUP_TENANT_NAMES_SHARED_MAX`` names, waiting or under way, shares no
requests. Within a tenant names go in their order, until the oldest has waited for longer than
``LOOKUP_QUEUE_MS_MAX``: then more names arrive than are answered, and the latest go first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

from nextgen.kernel.limits.cluster import (
    LOOKUP_BATCHES_IN_FLIGHT_MAX,
    LOOKUP_NAMES_IN_FLIGHT_MAX,
    LOOKUP_QUEUE_MS_MAX,
    NAMES_PER_LOOKUP_MAX,
)
from nextgen.kernel.limits.discovery import (
    LOOKUP_BATCHES_RESERVED,
    LOOKUP_NAMES_RESERVED,
    LOOKUP_TENANT_NAMES_SHARED_MAX,
)


class Waiting(Protocol):
    """A name that waits."""

    topic: str
    tenant: str
    since: float
    """When it began to wait, in seconds of the caller's clock."""


Item = TypeVar("Item", bound=Waiting)


class LookupLine(Generic[Item]):
    """Pure: the caller passes the time, and reports when requests and names are done."""

    def __init__(self) -> None:
        self._by_age: OrderedDict[str, Item] = OrderedDict()
        self._tenants: OrderedDict[str, OrderedDict[str, Item]] = OrderedDict()
        """The names of each tenant, oldest first; the tenant whose turn is next comes first."""
        self._under_way: Counter[str] = Counter()
        """Names under way, by tenant."""
        self._names_under_way = 0
        self._shared_batches = 0
        self._own_batches = 0
        """Requests that serve one tenant with many names only."""

    def __repr__(self) -> str:
        return f"<LookupLine names={len(self)} tenants={len(self._tenants)}>"

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def oldest(self) -> Item:
        """The name that has waited longest; there must be one."""
        return next(iter(self._by_age.values()))

    def put(self, item: Item) -> None:
        """Add a name that does not wait yet."""
        self._by_age[item.topic] = item
        self._tenants.setdefault(item.tenant, OrderedDict())[item.topic] = item

    def discard(self, item: Item) -> None:
        """Remove a name that waits."""
        del self._by_age[item.topic]
        names = self._tenants[item.tenant]
        del names[item.topic]
        if not names:
            del self._tenants[item.tenant]

    @property
    def has_room(self) -> bool:
        """Whether another request may be in flight, if there are names for it."""
        return self._shared_batches + self._own_batches < LOOKUP_BATCHES_IN_FLIGHT_MAX

    def take(self, now: float) -> tuple[list[Item], bool]:
        """Remove and return the names of the next request, and whether it serves one tenant only.

        The names are under way until ``names_done``, the request until ``batch_done``. Without
        names no request may begin before another one is done.
        """
        free = LOOKUP_NAMES_IN_FLIGHT_MAX - self._names_under_way
        if free <= 0 or not self.has_room:
            return [], False
        taken = self._take_shared(min(NAMES_PER_LOOKUP_MAX, free), now)
        is_own = not taken
        if is_own:
            taken = self._take_own(min(NAMES_PER_LOOKUP_MAX, free - LOOKUP_NAMES_RESERVED), now)
        if taken:
            self._names_under_way += len(taken)
            self._under_way.update(item.tenant for item in taken)
            self._own_batches += is_own
            self._shared_batches += not is_own
        return taken, is_own

    def batch_done(self, *, is_own: bool) -> None:
        """Note that a request is done, though some of its names may still be under way."""
        self._own_batches -= is_own
        self._shared_batches -= not is_own

    def names_done(self, items: Iterable[Item]) -> None:
        """Note that these names are not under way any more."""
        for item in items:
            self._names_under_way -= 1
            self._under_way[item.tenant] -= 1
            if not self._under_way[item.tenant]:
                del self._under_way[item.tenant]

    def _take_shared(self, room: int, now: float) -> list[Item]:
        taken: list[Item] = []
        for tenant, names in tuple(islice(self._tenants.items(), room)):
            if len(names) + self._under_way[tenant] > LOOKUP_TENANT_NAMES_SHARED_MAX:
                continue
            taken += self._take_of(tenant, room - len(taken), now)
            if len(taken) == room:
                break
        return taken

    def _take_own(self, room: int, now: float) -> list[Item]:
        own_max = LOOKUP_BATCHES_IN_FLIGHT_MAX - LOOKUP_BATCHES_RESERVED
        if room <= 0 or self._own_batches >= own_max or not self._tenants:
            return []
        return self._take_of(next(iter(self._tenants)), room, now)

    def _take_of(self, tenant: str, room: int, now: float) -> list[Item]:
        names = self._tenants[tenant]
        self._tenants.move_to_end(tenant)
        is_late = now - next(iter(names.values())).since > LOOKUP_QUEUE_MS_MAX / 1_000
        ordered = reversed(names.values()) if is_late else iter(names.values())
        taken = list(islice(ordered, room))
        for item in taken:
            self.discard(item)
        return taken
