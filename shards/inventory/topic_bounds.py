"""How many topics of a namespace a shard may have: its share of what the policies say of all.

A namespace's topics are spread over the shards by their names, as evenly as the slots. Each shard
allows its share of the slots, rounded up, without asking the others: the sum may exceed the bound
by less than one topic a shard, and a namespace whose names fall unevenly is full a little earlier
in one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.placement import NAMESPACES_COUNTED_MAX
from shards.state.shard_state import ShardState


class Said(Protocol):
    """What counts for namespaces at the moment, by their names."""

    def __getitem__(self, namespace: str, /) -> Policies:
        """Return what counts for a namespace.

        Raises:
            MetadataError: It is not known, and could not be read.
        """
        ...


NO_BOUNDS: Mapping[str, Policies] = {}
"""For who has no bounds and asks for none."""


class DecidedBy(Protocol):
    """What is said of namespaces where it is decided; ``Rules`` is it."""

    def of(self, namespace: str) -> Policies | MetadataError: ...


class NamespacePolicies(Protocol):
    """What is said of namespaces and their tenants; ``PlacementPolicies`` is it."""

    def known(self, namespace: str) -> Policies | None: ...

    def deciding(self, namespaces: Iterable[str]) -> AbstractAsyncContextManager[DecidedBy]: ...


class TopicBounds:
    """The bounds of one shard, for one term.

    It counts a namespace's topics when it is first bounded, and must be told of every one that
    comes or goes from then on: ``note``.
    """

    def __init__(self, state: ShardState, policies: NamespacePolicies) -> None:
        self._state = state
        self._policies = policies
        self._counts: OrderedDict[str, int] = OrderedDict()

    def known(self, namespaces: Sequence[str]) -> Said | None:
        """Return what counts for ``namespaces``, None if it has to be read."""
        said: dict[str, Policies] = {}
        for namespace in namespaces:
            policies = self._policies.known(namespace)
            if policies is None:
                return None
            said[namespace] = policies
        return said

    @asynccontextmanager
    async def deciding(self, namespaces: Sequence[str]) -> AsyncIterator[Said]:
        """Give what counts for ``namespaces`` whenever it is asked inside, where it is decided by
        it: see ``PlacementPolicies.deciding``."""
        async with self._policies.deciding(namespaces) as decided_by:
            yield _Latest(decided_by)

    def check(self, namespace: str, policies: Policies, added: int) -> Rejected | None:
        """Return why there is no room for one topic more behind ``added`` others, None if there is.

        ``added`` are those that are decided with it and not proposed yet.
        """
        if not policies.topics_max:
            return None
        share = -(-policies.topics_max * sum(self._state.slots.owned()) // SLOT_COUNT)
        if self._count(namespace) + added < share:
            return None
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"namespace {namespace} may have {policies.topics_max} topics by topics_max, {share} "
            f"of them in shard {self._state.shard_id}, which has {self._count(namespace) + added}",
        )

    def note(self, namespace: str, added: int) -> None:
        """Note topics that were proposed, or with a negative number those that go."""
        if namespace in self._counts:
            self._counts[namespace] += added

    def _count(self, namespace: str) -> int:
        count = self._counts.get(namespace)
        if count is None:
            count = self._counts[namespace] = self._state.scans.count_topics(namespace)
            if len(self._counts) > NAMESPACES_COUNTED_MAX:
                self._counts.popitem(last=False)
        self._counts.move_to_end(namespace)
        return count


class _Latest:
    """What is said of namespaces as of when it is asked."""

    def __init__(self, decided_by: DecidedBy) -> None:
        self._decided_by = decided_by

    def __getitem__(self, namespace: str, /) -> Policies:
        found = self._decided_by.of(namespace)
        if isinstance(found, MetadataError):
            raise found
        return found
