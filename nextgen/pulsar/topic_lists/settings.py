"""The settings of topic lists, under Apache Pulsar's names."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.limits.listing import (
    SUBSCRIPTION_PATTERN_CHARACTERS,
    SUBSCRIPTION_PATTERN_CHARACTERS_MAX,
)
from nextgen.runtime.settings import Flag, Given
from protos.pulsar.PulsarApi_pb2 import FeatureFlags


@dataclass(frozen=True, slots=True)
class TopicListSettings:
    """What a node does about patterns."""

    evaluates_patterns: bool = True
    """``enableBrokerSideSubscriptionPatternEvaluation``: else listings have all topics, and clients
    filter by themselves."""

    serves_watchers: bool = True
    """``enableBrokerTopicListWatcher``. Without ``evaluates_patterns`` there are none either."""

    pattern_characters_max: int = SUBSCRIPTION_PATTERN_CHARACTERS
    """``subscriptionPatternMaxLength``, as Java counts."""

    @property
    def are_watchers_on(self) -> bool:
        return self.evaluates_patterns and self.serves_watchers

    def announce(self, flags: FeatureFlags) -> None:
        """Set the feature flags that tell clients of watchers; those that are off stay absent."""
        if self.are_watchers_on:
            flags.supports_topic_watchers = True
            flags.supports_topic_watcher_reconcile = True


DEFAULT_TOPIC_LISTS = TopicListSettings()

_EVALUATION = Flag(
    "--enable-broker-side-subscription-pattern-evaluation",
    "false: listings have all topics, clients apply their patterns, and none can be watched",
    "true",
    (
        "--enableBrokerSideSubscriptionPatternEvaluation",
        "--enable-broker-side-topic-filtering",
        "--enableBrokerSideTopicFiltering",
    ),
)
_WATCHER = Flag(
    "--enable-broker-topic-list-watcher",
    "false: topic lists cannot be watched",
    "true",
    ("--enableBrokerTopicListWatcher",),
)
_LENGTH = Flag(
    "--subscription-pattern-max-length",
    "longest pattern that is applied here, in characters",
    str(SUBSCRIPTION_PATTERN_CHARACTERS),
    ("--subscriptionPatternMaxLength",),
)

TOPIC_LIST_FLAGS = (_EVALUATION, _WATCHER, _LENGTH)
"""Flags of every process that Pulsar clients send patterns to. Their aliases are Pulsar's names."""


def topic_list_settings(given: Given) -> TopicListSettings:
    """Return the settings that ``TOPIC_LIST_FLAGS`` give."""
    return TopicListSettings(
        evaluates_patterns=given.truth(_EVALUATION.name),
        serves_watchers=given.truth(_WATCHER.name),
        pattern_characters_max=given.number(
            _LENGTH.name, least=0, most=SUBSCRIPTION_PATTERN_CHARACTERS_MAX
        ),
    )


def flags_of_topic_lists(settings: TopicListSettings) -> dict[str, str]:
    """Return the flags that give another process the same settings."""
    return {
        _EVALUATION.name: str(settings.evaluates_patterns).lower(),
        _WATCHER.name: str(settings.serves_watchers).lower(),
        _LENGTH.name: str(settings.pattern_characters_max),
    }
