"""The settings of topic lists, under Apache Pulsar's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.listing import (
    SUBSCRIPTION_PATTERN_CHARACTERS,
    SUBSCRIPTION_PATTERN_CHARACTERS_MAX,
)
from nextgen.pulsar.topic_lists.settings import (
    TOPIC_LIST_FLAGS,
    TopicListSettings,
    flags_of_topic_lists,
    topic_list_settings,
)
from nextgen.runtime.settings import read_settings
from protos.pulsar.PulsarApi_pb2 import FeatureFlags


def settings_of(
    arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> TopicListSettings:
    given = read_settings("program", "", TOPIC_LIST_FLAGS, arguments, environment or {})
    settings = topic_list_settings(given)
    given.check()
    return settings


def test_everything_is_on_by_default_with_the_length_of_pulsar() -> None:
    assert settings_of() == TopicListSettings(True, True, SUBSCRIPTION_PATTERN_CHARACTERS)
    assert SUBSCRIPTION_PATTERN_CHARACTERS == 50


@pytest.mark.parametrize(
    "name",
    [
        "--enable-broker-side-subscription-pattern-evaluation",
        "--enableBrokerSideSubscriptionPatternEvaluation",
        "--enable-broker-side-topic-filtering",
        "--enableBrokerSideTopicFiltering",
    ],
)
def test_evaluation_is_switched_off_under_each_of_its_names(name: str) -> None:
    settings = settings_of([name, "false"])

    assert not settings.evaluates_patterns
    assert not settings.are_watchers_on


def test_the_other_settings_have_the_names_of_pulsar_too() -> None:
    assert not settings_of(["--enableBrokerTopicListWatcher", "false"]).are_watchers_on
    assert settings_of(["--subscriptionPatternMaxLength", "7"]).pattern_characters_max == 7


def test_aliases_count_in_the_environment() -> None:
    alias = {"NEXTGEN_ENABLE_BROKER_SIDE_TOPIC_FILTERING": "false"}
    own = {"NEXTGEN_ENABLE_BROKER_SIDE_SUBSCRIPTION_PATTERN_EVALUATION": "true"}

    assert not settings_of([], alias).evaluates_patterns
    assert settings_of([], {**alias, **own}).evaluates_patterns


def test_a_pattern_may_be_configured_up_to_subscription_pattern_characters_max() -> None:
    most = SUBSCRIPTION_PATTERN_CHARACTERS_MAX
    name = "--subscription-pattern-max-length"

    assert settings_of([name, str(most)]).pattern_characters_max == most
    with pytest.raises(RefusesToStart, match="0 to"):
        settings_of([name, str(most + 1)])


def test_a_worker_gets_the_same_settings() -> None:
    settings = TopicListSettings(False, False, 7)

    flags = [part for flag in flags_of_topic_lists(settings).items() for part in flag]

    assert settings_of(flags) == settings


@pytest.mark.parametrize(
    ("settings", "announced"),
    [
        (TopicListSettings(), True),
        (TopicListSettings(serves_watchers=False), False),
        (TopicListSettings(evaluates_patterns=False), False),
    ],
)
def test_feature_flags_are_absent_where_nothing_can_be_watched(
    settings: TopicListSettings, announced: bool
) -> None:
    flags = FeatureFlags()

    settings.announce(flags)

    assert flags.HasField("supports_topic_watchers") is announced
    assert flags.HasField("supports_topic_watcher_reconcile") is announced
