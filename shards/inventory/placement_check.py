"""Checks placement rules before they are set.

A broker that a rule pins to must be one of the cluster's, alive or not: a typing error would leave
a topic on no broker after its broker's next restart. For the same reason a topic that is served
keeps its rules if the new ones, together with its namespace's and its tenant's, allow no broker
that is alive. Rules are checked when they change: a broker may end later.
"""

from __future__ import annotations

from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.policies import NO_RULES, Policies, merge
from shards.domain.placement.rules import NO_PEERS, Candidate, allowed_places, shown_names
from shards.domain.policies import PackedPolicies, SetPolicies
from shards.domain.topic import Topic
from shards.ports import BrokerDirectory
from shards.state.shard_state import ShardState


class PlacementCheck:
    """Checks the rules that one shard's leader is about to store.

    It reads the broker directory, which is as fresh as its last push. So its refusals are not kept
    as outcomes of their commands: a repetition is checked anew.
    """

    def __init__(self, state: ShardState, brokers: BrokerDirectory) -> None:
        self._state = state
        self._brokers = brokers

    def unknown_broker(self, order: SetPolicies, present: PackedPolicies) -> Rejected | None:
        """Return NOT_ALLOWED if ``order`` pins to a broker that the cluster has never had.

        Brokers that ``present`` pins to already are not checked.
        """
        pinned = order.policies.placement.pinned_brokers
        known = self._brokers.known_ids()
        unknown = [each for each in pinned if each not in known]
        if unknown:
            before = unpack_policies(present).placement.pinned_brokers
            unknown = [each for each in unknown if each not in before]
        if not unknown:
            return None
        there_are = f"there are {shown_names(sorted(known))}" if known else "none is known"
        why = f"no broker is called {shown_names(unknown)}; {there_are}"
        return Rejected(RejectionCode.NOT_ALLOWED, why)

    def concerns_served(self, order: SetPolicies, topic: Topic) -> bool:
        """Return whether ``order`` changes the rules of a topic that a live broker serves."""
        rules = order.policies.placement
        if rules in (NO_RULES, unpack_policies(topic.policies).placement):
            return False
        units = self._state.scans.assignments_of_topic(topic.topic_id).values()
        return any(self._brokers.session(each.session_id) is not None for each in units)

    def no_broker_left(self, order: SetPolicies, parents: Policies, kind: str) -> Rejected | None:
        """Return NOT_ALLOWED if ``order`` and the rules of ``parents`` allow no live broker of
        ``kind``."""
        rules = merge(namespace=parents, topic=order.policies).placement
        live = [
            Candidate(each.broker_id, each.session_id, 0, 0, each.zone, each.rack, kind=each.kind)
            for each in self._brokers.live()
        ]
        places = allowed_places(live, rules, NO_PEERS, kind)
        if not isinstance(places, Rejected):
            return None
        why = f"topic {order.name} is served, and would be on no broker: {places.message}"
        return Rejected(RejectionCode.NOT_ALLOWED, why)
