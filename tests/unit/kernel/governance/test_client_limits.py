"""Limits of clients are read from Pulsar's JSON: strictly when they are set, leniently later."""

from __future__ import annotations

import json

import pytest

from nextgen.kernel.governance.client_limits import (
    LIMIT_POLICIES,
    NO_LIMITS,
    TENANT_LIMITS,
    BrokerLimits,
    Rate,
    TenantLimits,
    TopicLimits,
    limits_of,
    problem,
    refused,
)
from nextgen.kernel.governance.policies import Policies, PolicyLevel, check_policies, merge
from nextgen.kernel.governance.service_settings import InvalidSetting, lenient, resolve
from nextgen.kernel.limits.inbound import RATE_PERIOD_SECONDS_MAX
from nextgen.kernel.limits.pulsar import CONSUMER_UNACKED_MAX


def stored(**policies: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, json.dumps(value)) for name, value in policies.items()))


def test_every_policy_is_read():
    rate = {"dispatchThrottlingRateInMsg": 7, "ratePeriodInSecond": 2}
    found = limits_of(
        stored(
            publishRate={"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1},
            dispatchRate={**rate, "relativeToPublishRate": True},
            subscriptionDispatchRate={"dispatchThrottlingRateInByte": 9},
            subscriptionDispatchRates={"mine": rate},
            subscribeRate={"subscribeThrottlingRatePerConsumer": 3},
            maxProducersPerTopic=1,
            maxConsumersPerTopic=2,
            maxConsumersPerSubscription=3,
            maxSubscriptionsPerTopic=4,
            maxUnackedMessagesPerConsumer=5,
            maxUnackedMessagesPerSubscription=6,
            tenantLimits={"publishRateInMsgs": 10, "dispatchRateInBytes": 20, "maxProducers": 30},
            somethingElse={"a": 1},
        ),
        NO_LIMITS,
    )

    assert found == TopicLimits(
        publish=Rate(5),
        dispatch=Rate(7, 0, 2, is_relative=True),
        subscription_dispatch=Rate(0, 9),
        named_dispatch=(("mine", Rate(7, 0, 2)),),
        subscribes=3,
        subscribe_period_seconds=30,
        producers=1,
        consumers=2,
        subscription_consumers=3,
        subscriptions=4,
        consumer_unacked=5,
        subscription_unacked=6,
        tenant=TenantLimits(Rate(10), Rate(0, 20), producers=30),
    )


def test_the_level_above_wins_also_with_no_bound():
    service = resolve({"maxPublishRatePerTopicInMessages": "100", "maxProducersPerTopic": "9"})
    assert limits_of((), service.topic_limits).publish == Rate(100)

    of_tenant = Policies(stored=stored(maxProducersPerTopic=8))
    of_namespace = Policies(stored=stored(publishRate={"publishThrottlingRateInMsg": -1}))
    of_topic = Policies(stored=stored(maxProducersPerTopic=0))
    merged = merge(of_tenant, of_namespace, of_topic).stored
    found = limits_of(merged, service.topic_limits)

    assert not found.publish
    assert found.producers == 0
    below = limits_of(merge(of_tenant, of_namespace).stored, service.topic_limits)
    assert below.producers == 8


@pytest.mark.parametrize("value", [0, CONSUMER_UNACKED_MAX, CONSUMER_UNACKED_MAX + 1, 2**31 - 1])
def test_unacknowledged_messages_always_have_a_bound(value):
    found = limits_of(stored(maxUnackedMessagesPerConsumer=value), NO_LIMITS)

    assert found.consumer_unacked == CONSUMER_UNACKED_MAX


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("publishRate", {"publishThrottlingRateInMsg": -2}, "publishThrottlingRateInMsg is not -1"),
        ("publishRate", {"publishThrottlingRateInByte": 2**63}, "publishThrottlingRateInByte is"),
        ("publishRate", {"publishThrottlingRateInMsg": 1.5}, "InMsg is no whole number"),
        ("publishRate", {"publishThrottlingRateInMsg": True}, "InMsg is no whole number"),
        ("publishRate", {"publishThrotlingRate": 1}, "is none of publishThrottlingRateInMsg"),
        ("publishRate", [1], "it is no object"),
        ("dispatchRate", {"ratePeriodInSecond": 0}, "ratePeriodInSecond is not 1 to 86400"),
        ("dispatchRate", {"ratePeriodInSecond": -5}, "ratePeriodInSecond is not 1 to 86400"),
        ("dispatchRate", {"relativeToPublishRate": 1}, "relativeToPublishRate is neither true"),
        ("subscriptionDispatchRates", {"a": {"ratePeriodInSecond": 0}}, "ratePeriodInSecond is"),
        ("subscriptionDispatchRates", 7, "it is no object"),
        ("subscribeRate", {"subscribeThrottlingRatePerConsumer": -9}, "PerConsumer is not -1"),
        ("maxProducersPerTopic", -1, "maxProducersPerTopic is not 0 to 2147483647"),
        ("maxProducersPerTopic", 2**31, "maxProducersPerTopic is not 0"),
        ("maxConsumersPerTopic", "five", "maxConsumersPerTopic is no whole number"),
        ("tenantLimits", {"maxProducers": -1}, "maxProducers is not 0 to"),
        ("tenantLimits", {"max_producers": 1}, "is none of publishRateInMsgs"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(name, value, message):
    assert message in problem(name, value)
    assert refused(name, json.dumps(value)).startswith(f"{name}: ")
    assert limits_of(stored(**{name: value}), NO_LIMITS) == NO_LIMITS, "and read as not set"
    decided = check_policies(Policies(stored=stored(**{name: value})), PolicyLevel.TENANT)
    assert decided is not None
    assert message in decided.message


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "nul"])
def test_what_is_no_json_is_refused(text):
    for name in LIMIT_POLICIES:
        assert refused(name, text) == f"{name}: it is no JSON"
        assert limits_of(((name, text),), NO_LIMITS) == NO_LIMITS


def test_a_period_has_so_many_seconds():
    """RATE_PERIOD_SECONDS_MAX at the limit and one beyond."""
    at = {"dispatchThrottlingRateInMsg": 1, "ratePeriodInSecond": RATE_PERIOD_SECONDS_MAX}

    assert problem("dispatchRate", at) == ""
    beyond = {**at, "ratePeriodInSecond": RATE_PERIOD_SECONDS_MAX + 1}
    assert problem("dispatchRate", beyond) == "ratePeriodInSecond is not 1 to 86400"


@pytest.mark.parametrize("level", [PolicyLevel.NAMESPACE, PolicyLevel.TOPIC])
def test_only_a_tenant_has_a_ceiling(level):
    policies = Policies(stored=((TENANT_LIMITS, '{"maxProducers":1}'),))

    assert check_policies(policies, PolicyLevel.TENANT) is None
    decided = check_policies(policies, level)
    assert decided is not None
    assert "tenantLimits cannot be set for a" in decided.message


def test_what_others_store_is_not_looked_at():
    assert refused("offloadPolicies", "{") == ""
    assert check_policies(Policies(stored=(("x", "{"),)), PolicyLevel.TOPIC) is None


def test_settings_are_the_lowest_level():
    settings = resolve(
        {
            "brokerMaxConnections": "10",
            "brokerMaxConnectionsPerIp": "2",
            "brokerMaxProducersPerRole": "3",
            "dispatchThrottlingRatePerTopicInMsg": "50",
            "dispatchThrottlingRateRelativeToPublishRate": "true",
        }
    )

    assert settings.broker_limits == BrokerLimits(10, 2, role_producers=3)
    assert settings.topic_limits.dispatch == Rate(50, is_relative=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1", "brokerMaxConnections is -1, 0 to 2147483647 are allowed"),
        ("1.5", "brokerMaxConnections is 1.5, a whole number is needed"),
        ("2147483648", "brokerMaxConnections is 2147483648, 0 to 2147483647 are allowed"),
        ("many", "brokerMaxConnections is no number"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_and_ignored(text, message):
    with pytest.raises(InvalidSetting) as error:
        resolve({"brokerMaxConnections": text})
    assert str(error.value) == message

    assert lenient({"brokerMaxConnections": text}).broker_limits == BrokerLimits()
