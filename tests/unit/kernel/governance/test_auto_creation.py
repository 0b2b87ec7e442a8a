import pytest

from nextgen.kernel.governance.auto_creation import AutoCreation, auto_creation
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX


def test_without_properties_plain_topics_are_created():
    assert auto_creation({}) == AutoCreation(True, 0)


@pytest.mark.parametrize("value", ["false", "FALSE", " False "])
def test_a_namespace_may_forbid_it(value):
    assert auto_creation({"allowAutoTopicCreation": value}) == AutoCreation(False, 0)


def test_a_partitioned_namespace_creates_one_partition_unless_it_says_how_many():
    kind = {"autoTopicCreationType": "partitioned"}

    assert auto_creation(kind) == AutoCreation(True, 1)
    assert auto_creation({**kind, "defaultNumPartitions": "6"}) == AutoCreation(True, 6)


def test_the_number_of_partitions_is_not_looked_at_for_plain_topics():
    properties = {"autoTopicCreationType": "non-partitioned", "defaultNumPartitions": "none"}

    assert auto_creation(properties) == AutoCreation(True, 0)


@pytest.mark.parametrize("count", ["1", str(PARTITIONS_PER_TOPIC_MAX)])
def test_as_many_partitions_as_a_topic_may_have_are_created(count):
    properties = {"autoTopicCreationType": "Partitioned", "defaultNumPartitions": count}

    assert auto_creation(properties) == AutoCreation(True, int(count))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowAutoTopicCreation", "yes"),
        ("allowAutoTopicCreation", ""),
        ("autoTopicCreationType", "both"),
        ("defaultNumPartitions", "0"),
        ("defaultNumPartitions", "-1"),
        ("defaultNumPartitions", "1.5"),
        ("defaultNumPartitions", "\u0662"),
        ("defaultNumPartitions", str(PARTITIONS_PER_TOPIC_MAX + 1)),
        ("defaultNumPartitions", "9" * 5_000),
    ],
)
def test_a_value_that_cannot_be_understood_creates_nothing_and_is_named(name, value):
    creation = auto_creation({"autoTopicCreationType": "partitioned", name: value})

    assert not creation.is_allowed
    assert creation.partitions == 0
    assert name in creation.problem
    assert len(creation.problem) < 300
