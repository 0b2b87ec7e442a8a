"""Policies of single topics: /admin/v2/{domain}/{tenant}/{namespace}/{topic}/{policy}

They are the policies of a namespace under Pulsar's names for topics. A topic's value wins over its
namespace's; ``?applied=true`` reads the one in force (ADR 0081).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from discovery.adapters.administration.policy_routes import APPLIED, PolicyRoutes
from discovery.adapters.administration.quota_routes import QuotaRoutes
from discovery.adapters.resources.topics import TOPIC
from discovery.adapters.rest.answer import DONE, Answer, RestFailure, content
from discovery.adapters.rest.request import RestRequest, shown
from discovery.adapters.rest.route import Body, Route
from discovery.service.admin.deadline import Deadline
from discovery.service.tenancy.object_policies import ObjectPolicies
from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.policies import policy_checks as checks
from nextgen.pulsar.policies import policy_types as types
from nextgen.pulsar.policies.policy_table import POLICIES, UNSET, Policy, checked

_OF_NAMESPACES = {policy.name: policy for policy in POLICIES}


def _same(of_namespace: str, **other: Any) -> Policy:
    """Return the row of a namespace's policy as that of a topic, except for ``other``."""
    changes = {"unset": UNSET, "removed_at": "", "stored_as": of_namespace, **other}
    return replace(_OF_NAMESPACES[of_namespace], **changes)


TOPIC_POLICIES: tuple[Policy, ...] = (
    _same("retention"),
    _same("messageTTL", is_in_query=True),
    _same("idleUnloadSeconds"),
    _same("deduplication", name="deduplicationEnabled"),
    _same("schemaCompatibilityStrategy"),
    _same("schemaValidationEnforced", unset=False, removed_at=None),
    _same("autoSubscriptionCreation"),
    _same("subscriptionTypesEnabled"),
    _same("persistence"),
    _same("publishRate"),
    _same("dispatchRate"),
    _same("subscriptionDispatchRate"),
    _same("replicatorDispatchRate"),
    _same("subscribeRate"),
    _same("maxProducersPerTopic", name="maxProducers"),
    _same("maxConsumersPerTopic", name="maxConsumers"),
    _same("maxConsumersPerSubscription"),
    _same("maxSubscriptionsPerTopic"),
    _same("maxUnackedMessagesPerConsumer", name="maxUnackedMessagesOnConsumer"),
    _same("maxUnackedMessagesPerSubscription", name="maxUnackedMessagesOnSubscription"),
    Policy(
        "maxMessageSize",
        "max_message_size",
        types.Int,
        "Bytes of a message",
        check=checks.not_negative,
    ),
    _same("deduplicationSnapshotInterval", note=""),
    _same("inactiveTopicPolicies"),
    _same("delayedDelivery"),
    _same("compactionThreshold", set_by="POST"),
    _same("offloadPolicies"),
    _same("entryFilters"),
    _same("dispatcherPauseOnAckStatePersistent"),
)
"""The policies of a topic, in the order of a namespace's. Backlog quotas and clusters have other
routes."""

AUTO_SCALE = replace(
    _same("scalableTopicAutoScalePolicy", name="autoScalePolicy"),
    summary="How a scalable topic grows and shrinks",
)
"""Of a scalable topic, which has routes of its own."""

_RATES = Policy(
    "subscriptionDispatchRates",
    "subscriptionDispatchRates",
    dict[str, types.DispatchRate],
    "Dispatching to single subscriptions, by their names",
    is_acted_on=True,
)
_RATE_OF_ALL = _OF_NAMESPACES["subscriptionDispatchRate"]
_RATE: TypeAdapter[types.DispatchRate] = TypeAdapter(types.DispatchRate)


class TopicPolicyRoutes:
    """All policies of topics, of one cluster, ``cluster_name``."""

    def __init__(self, policies: ObjectPolicies, cluster_name: str) -> None:
        self._policies = policies
        self._cluster_name = cluster_name

    def routes(self) -> list[Route]:
        clusters = Policy(
            "replication",
            "replication_clusters",
            types.SomeNames,
            "The clusters of a topic: this one",
            check=self._only_this_cluster,
            refused_with=403,
        )
        given = (TOPIC, self._policies, topic_name, True)
        routes = [
            *PolicyRoutes(*given).routes((*TOPIC_POLICIES, clusters)),
            *QuotaRoutes(*given).routes(),
            *self._of_subscriptions(),
        ]
        partition = {405: "A partition has no policies of its own."}
        return [replace(route, answers={**route.answers, **partition}) for route in routes]

    def _of_subscriptions(self) -> list[Route]:
        path = f"{TOPIC}/{{subscription}}/dispatchRate"
        what = "Dispatching to one subscription"
        done = {204: "It is done, and effective."}
        return [
            Route(
                "GET",
                path,
                self._get_rate,
                what,
                Action.READ,
                scope=ResourceKind.NAMESPACE,
                query=APPLIED,
                answers={200: "The rate.", 204: "Unset."},
            ),
            Route(
                "POST",
                path,
                self._set_rate,
                f"Set: {what}",
                Action.CHANGE,
                body=Body(_RATE),
                answers=done,
            ),
            Route(
                "DELETE",
                path,
                partial(self._change_rate, None),
                f"Remove: {what}",
                Action.CHANGE,
                answers=done,
            ),
        ]

    async def _get_rate(self, request: RestRequest) -> Answer:
        name, deadline = topic_name(request), Deadline(request.timeout_ms)
        is_applied = request.flag("applied")
        found = await self._policies.read(name, deadline, merged=is_applied)
        value = _rates(found).get(request.parts["subscription"], UNSET)
        if value is UNSET and is_applied:
            value = _RATE_OF_ALL.read(found)
        return DONE if value is UNSET else content(value)

    async def _set_rate(self, request: RestRequest) -> Answer:
        return await self._change_rate(checked(_RATE_OF_ALL, request.body), request)

    async def _change_rate(self, rate: Any, request: RestRequest) -> Answer:
        def change(policies: Policies) -> Policies:
            rates = _rates(policies)
            rates.pop(request.parts["subscription"], None)
            if rate is not None:
                rates[request.parts["subscription"]] = rate
            return _RATES.write(policies, rates or None)

        await self._policies.change(topic_name(request), change, Deadline(request.timeout_ms))
        return DONE

    def _only_this_cluster(self, names: list[str]) -> str:
        unknown = sorted(set(names) - {self._cluster_name})
        return f"cluster {shown(unknown[0])} does not exist" if unknown else ""


def topic_name(request: RestRequest) -> str:
    """Return the topic that the path names.

    Raises:
        RestFailure: 405, it is a partition.
    """
    return whole_topic(request.topic())


def whole_topic(name: TopicName) -> str:
    """Return the text of ``name``.

    Raises:
        RestFailure: 405, it is a partition.
    """
    if name.partition is not None:
        raise RestFailure(405, f"{name.text} is a partition: policies are the whole topic's")
    return name.text


def _rates(policies: Policies) -> dict[str, Any]:
    value = _RATES.read(policies)
    return {} if value is UNSET else dict(value)
