"""The topic aggregate, tested without a log, a network or a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX
from nextgen.kernel.routing.names import parse_topic
from shards.domain.states import StateKind
from shards.domain.topic import (
    INITIAL,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    SetTopicProperties,
    Topic,
    TopicCreated,
    TopicDeleted,
    TopicPartitionsGrown,
    TopicPropertiesSet,
    decide,
    evolve,
)
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

NAME = "persistent://acme/orders/paid"
PARSED = parse_topic(NAME)
CREATED = TopicCreated("t-1", NAME, 4, "ns-1", 1_000, (("a", "1"),))


def create(topic_id="t-1", name=NAME, partitions=4, properties=(("a", "1"),)):
    return CreateTopic(topic_id, parse_topic(name), "ns-1", 1_000, partitions, properties)


def given_events(*events):
    return fold(evolve, INITIAL, events)


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_creating_a_topic_emits_topic_created_with_what_the_command_was_stamped_with():
    assert decide(INITIAL, create()) == Accepted((CREATED,))


def test_a_created_topic_is_at_version_1():
    assert given_events(CREATED) == Topic("t-1", NAME, 4, 1, "ns-1", 1_000, (("a", "1"),))


def test_creating_with_the_same_id_again_is_a_retry():
    assert decide(given_events(CREATED), create()) == Accepted(())


def test_a_second_topic_of_the_same_name_is_rejected():
    assert code_of(decide(given_events(CREATED), create("t-2"))) is RejectionCode.ALREADY_EXISTS


@pytest.mark.parametrize("partitions", [0, 1, PARTITIONS_PER_TOPIC_MAX])
def test_partitions_within_the_limit_are_accepted(partitions):
    assert isinstance(decide(INITIAL, create(partitions=partitions)), Accepted)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param(create(name="topic://a/b/c"), RejectionCode.NOT_ALLOWED, id="scalable"),
        pytest.param(
            create(name="segment://a/b/c/0000-7fff-1"), RejectionCode.NOT_ALLOWED, id="segment"
        ),
        pytest.param(
            create(name=f"{NAME}-partition-3"), RejectionCode.INVALID_NAME, id="partition"
        ),
        pytest.param(
            create(partitions=PARTITIONS_PER_TOPIC_MAX + 1),
            RejectionCode.LIMIT_EXCEEDED,
            id="partitions",
        ),
        pytest.param(
            create(properties=(("", "x"),)), RejectionCode.LIMIT_EXCEEDED, id="properties"
        ),
    ],
)
def test_what_can_never_be_a_topic_is_rejected(command, code):
    assert code_of(decide(INITIAL, command)) is code


def test_setting_properties_replaces_them_all_and_moves_the_version():
    decision = decide(given_events(CREATED), SetTopicProperties(NAME, (), 1))

    assert decision == Accepted((TopicPropertiesSet(NAME, (), "t-1"),))
    after = fold(evolve, given_events(CREATED), decision.events)
    assert after == Topic("t-1", NAME, 4, 2, "ns-1", 1_000, ())


@pytest.mark.parametrize(
    ("history", "command", "code"),
    [
        pytest.param((), SetTopicProperties(NAME, ()), RejectionCode.NOT_FOUND, id="absent"),
        pytest.param(
            (CREATED,), SetTopicProperties(NAME, (), 7), RejectionCode.VERSION_MISMATCH, id="stale"
        ),
        pytest.param(
            (CREATED,),
            SetTopicProperties(NAME, (("k" * 256, ""),)),
            RejectionCode.LIMIT_EXCEEDED,
            id="too-large",
        ),
    ],
)
def test_setting_properties_is_rejected(history, command, code):
    assert code_of(decide(given_events(*history), command)) is code


def test_growing_sets_the_number_of_partitions_and_moves_the_version():
    decision = decide(given_events(CREATED), GrowTopic(NAME, 6))

    assert decision == Accepted((TopicPartitionsGrown(NAME, "t-1", 6),))
    after = fold(evolve, given_events(CREATED), decision.events)
    assert after == Topic("t-1", NAME, 6, 2, "ns-1", 1_000, (("a", "1"),))


def test_growing_to_the_present_number_changes_nothing():
    assert decide(given_events(CREATED), GrowTopic(NAME, 4)) == Accepted(())


@pytest.mark.parametrize(
    ("history", "partitions", "code"),
    [
        pytest.param((), 6, RejectionCode.NOT_FOUND, id="absent"),
        pytest.param((CREATED,), 3, RejectionCode.FEWER_PARTITIONS, id="fewer"),
        pytest.param((CREATED,), 0, RejectionCode.LIMIT_EXCEEDED, id="none"),
        pytest.param(
            (TopicCreated("t-1", NAME, 0, "ns-1", 1),), 2, RejectionCode.NOT_PARTITIONED, id="whole"
        ),
    ],
)
def test_growing_is_rejected(history, partitions, code):
    assert code_of(decide(given_events(*history), GrowTopic(NAME, partitions))) is code


def test_partitions_per_topic_max_is_what_a_topic_may_grow_to_and_not_one_more():
    topic = given_events(CREATED)

    grown = decide(topic, GrowTopic(NAME, PARTITIONS_PER_TOPIC_MAX))
    beyond = decide(topic, GrowTopic(NAME, PARTITIONS_PER_TOPIC_MAX + 1))

    assert isinstance(grown, Accepted)
    assert code_of(beyond) is RejectionCode.LIMIT_EXCEEDED


def test_deleting_removes_the_topic():
    decision = decide(given_events(CREATED), DeleteTopic(NAME, "t-1", forced=True))

    assert decision == Accepted((TopicDeleted(NAME, "t-1", 4, forced=True),))
    assert given_events(CREATED, TopicDeleted(NAME, "t-1")) is None


def test_deleting_what_was_not_found_is_rejected():
    assert code_of(decide(INITIAL, DeleteTopic(NAME, ""))) is RejectionCode.NOT_FOUND


@pytest.mark.parametrize("history", [(), (TopicCreated("t-2", NAME, 0, "ns-1", 1),)])
def test_a_repeated_deletion_does_not_delete_another_topic(history):
    assert decide(given_events(*history), DeleteTopic(NAME, "t-1")) == Accepted(())


ids = st.sampled_from(["t-1", "t-2"])
properties = st.sampled_from([(), (("a", "1"),), (("a", "1"), ("b", "ü"))])
names = st.sampled_from([PARSED, parse_topic("topic://a/b/c"), PARSED.of_partition(1)])
commands = st.one_of(
    st.builds(
        CreateTopic, ids, names, st.just("ns-1"), st.just(5), st.integers(-1, 10_001), properties
    ),
    st.builds(SetTopicProperties, st.just(NAME), properties, st.integers(0, 3)),
    st.builds(GrowTopic, st.just(NAME), st.sampled_from([0, 4, 5, 6, 10_001])),
    st.builds(DeleteTopic, st.just(NAME), st.sampled_from(["", "t-1", "t-2"])),
)
TOPIC = AggregateUnderTest(decide, evolve, StateKind.TOPIC, lambda state: state.name)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(TOPIC, history, command, cut)
