"""How many topics of a namespace a shard may have, which ones clients create by using them, and
which brokers serve them.

``topics_max`` is a bound for the namespace. Each shard has a share of it.

A namespace's topics are spread over the shards by their names, as evenly as the slots. Each shard
allows its share of the slots, rounded up, without asking the others: the sum may exceed the bound
by less than one topic a shard, and a namespace whose names fall unevenly is full a little earlier
in one of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from nextgen.kernel.errors import MetadataError, Unavailable
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.auto_creation import AutoCreation
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.placement import NAMESPACES_COUNTED_MAX
from shards.state.shard_state import ShardState


class OnDemand(NamedTuple):
    """Whether and how topics of a namespace are created by their first use."""

    namespace_id: str
    """Of the namespace whose rule it is; "" if there was none."""

    rule: AutoCreation


class ServedBy(NamedTuple):
    """The kind of brokers that serve the topics of a namespace."""

    namespace_id: str
    """Of the namespace that is known here; "" if there was none."""

    kind: str


class PoliciesByNamespace(Protocol):
    """The present policies of namespaces, merged with their tenants', by name."""

    def __getitem__(self, namespace: str, /) -> Policies:
        """Return the merged policies of a namespace.

        Raises:
            MetadataError: They are not known and could not be read.
        """
        ...

    def on_demand(self, namespace: str) -> OnDemand:
        """Return the rule for topics on demand.

        Raises:
            MetadataError: It is not known and could not be read.
        """
        ...

    def served_by(self, namespace: str) -> ServedBy | None:
        """Return the brokers of a namespace, None where no namespaces are followed.

        Raises:
            MetadataError: It is not known and could not be read.
        """
        ...


class _NoBounds:
    """Used where no policies are followed: nothing is bounded, and no topic is made on demand."""

    def __getitem__(self, namespace: str, /) -> Policies:
        return NO_POLICIES

    def on_demand(self, namespace: str) -> OnDemand:
        raise Unavailable(f"the policies of {namespace} are not followed here")

    def served_by(self, namespace: str) -> None:
        return None


NO_BOUNDS = _NoBounds()


class DecidedBy(Protocol):
    """The policies of namespaces during a decision. Implemented by ``Rules``."""

    def of(self, namespace: str) -> Policies | MetadataError: ...

    def on_demand(self, namespace: str) -> OnDemand | MetadataError: ...

    def served_by(self, namespace: str) -> ServedBy | MetadataError: ...


class NamespacePolicies(Protocol):
    """The policies of namespaces and their tenants. Implemented by ``PlacementPolicies``."""

    def known(self, namespace: str) -> Policies | None: ...

    def on_demand(self, namespace: str) -> OnDemand | None: ...

    def served_by(self, namespace: str) -> ServedBy | None: ...

    def deciding(self, namespaces: Iterable[str]) -> AbstractAsyncContextManager[DecidedBy]: ...


class TopicBounds:
    """The bounds of one shard, for one term.

    A namespace's topics are counted when its bound is first checked. From then on the caller MUST
    report every topic that is created or deleted: ``note``.
    """

    def __init__(self, state: ShardState, policies: NamespacePolicies) -> None:
        self._state = state
        self._policies = policies
        self._counts: OrderedDict[str, int] = OrderedDict()

    def known(self, namespaces: Sequence[str]) -> PoliciesByNamespace | None:
        """Return the policies of ``namespaces``, None if some have to be read."""
        found: dict[str, Policies] = {}
        for namespace in namespaces:
            policies = self._policies.known(namespace)
            if policies is None:
                return None
            found[namespace] = policies
        return _Known(found, self._policies)

    @asynccontextmanager
    async def deciding(self, namespaces: Sequence[str]) -> AsyncIterator[PoliciesByNamespace]:
        """Return the policies of ``namespaces``, to decide and propose by inside: each access gives
        the present ones. See ``PlacementPolicies.deciding``."""
        async with self._policies.deciding(namespaces) as decided_by:
            yield _Latest(decided_by)

    def check(self, namespace: str, policies: Policies, added: int) -> Rejected | None:
        """Return why the namespace may not have one more topic besides ``added``, None if it may.

        ``added`` counts topics that are decided with it and not proposed yet.
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
        """Count topics whose creation was proposed; a negative number is of deletions."""
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


class _Known:
    """The policies of namespaces that are followed. No await may be between two accesses."""

    def __init__(self, found: dict[str, Policies], policies: NamespacePolicies) -> None:
        self._found = found
        self._policies = policies

    def __getitem__(self, namespace: str, /) -> Policies:
        return self._found[namespace]

    def on_demand(self, namespace: str) -> OnDemand:
        rule = self._policies.on_demand(namespace)
        assert rule is not None, "what is followed does not change within a decision"
        return rule

    def served_by(self, namespace: str) -> ServedBy:
        served = self._policies.served_by(namespace)
        assert served is not None, "what is followed does not change within a decision"
        return served


class _Latest:
    """The policies of namespaces at the time of each access."""

    def __init__(self, decided_by: DecidedBy) -> None:
        self._decided_by = decided_by

    def __getitem__(self, namespace: str, /) -> Policies:
        found = self._decided_by.of(namespace)
        if isinstance(found, MetadataError):
            raise found
        return found

    def on_demand(self, namespace: str) -> OnDemand:
        rule = self._decided_by.on_demand(namespace)
        if isinstance(rule, MetadataError):
            raise rule
        return rule

    def served_by(self, namespace: str) -> ServedBy:
        served = self._decided_by.served_by(namespace)
        if isinstance(served, MetadataError):
            raise served
        return served


def kind_for(policies: PoliciesByNamespace, namespace: str, namespace_id: str) -> str:
    """Return the kind of brokers that serve topics of the namespace that has this id now.

    Raises:
        Unavailable: The namespace was created since the watch has last brought it.
        MetadataError: It is not known and could not be read.
    """
    served = policies.served_by(namespace)
    if served is None:
        return ""
    if served.namespace_id != namespace_id:
        raise Unavailable(f"it is not known here yet which brokers serve namespace {namespace}")
    return served.kind
