"""Service-level settings: every name sets its field, and what makes no sense is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.kernel.governance.auto_scale_policy import AUTO_SCALE_FIELDS, DEFAULT_AUTO_SCALE
from nextgen.kernel.governance.balance_settings import DEFAULT_BALANCE
from nextgen.kernel.governance.service_settings import (
    DEFAULT_SETTINGS,
    DEFAULT_TEXTS,
    NODE_LOST_AFTER,
    SUMMARIES,
    InvalidSetting,
    LoadReporting,
    UnknownSetting,
    lenient,
    problem,
    resolve,
    runtime_texts,
)
from nextgen.kernel.limits.placement import (
    NODE_LOST_SECONDS_MAX,
    SETTING_TEXT_CHARACTERS_MAX,
    SHARD_COMMANDS_SETTING_MAX,
    SHARD_TOPICS_SETTING_MAX,
)


def test_the_defaults_as_texts_are_the_defaults():
    assert resolve({}) == resolve(DEFAULT_TEXTS) == lenient(DEFAULT_TEXTS) == DEFAULT_SETTINGS
    assert DEFAULT_TEXTS["scalableTopicAutoScaleEnabled"] == "true"
    assert DEFAULT_TEXTS["scalableTopicSplitMsgRateInThreshold"] == "10000"
    assert DEFAULT_TEXTS["scalableTopicLoadReportRateChangeThreshold"] == "0.25"
    assert DEFAULT_TEXTS["loadBalancerSheddingIntervalMinutes"] == "1"


def test_every_setting_says_what_it_is():
    assert list(SUMMARIES) == list(DEFAULT_TEXTS)


def test_every_field_of_the_policy_has_a_name_in_the_configuration():
    resolved = [resolve_other(name).auto_scale for name in DEFAULT_TEXTS]
    named = {each for each in resolved if each != DEFAULT_AUTO_SCALE}

    assert len(named) == len(AUTO_SCALE_FIELDS) == 17


def resolve_other(name):
    """Resolve with another value of one setting than the default."""
    default = DEFAULT_TEXTS[name]
    if default in ("true", "false"):
        return resolve({name: "false" if default == "true" else "true"})
    for other in (float(default) + 1, float(default) * 2, float(default) / 2):
        text = str(other)
        if not problem({name: text}):
            return resolve({name: text})
    raise AssertionError(f"{name} has no other value")


def test_every_setting_changes_what_is_resolved():
    assert [name for name in DEFAULT_TEXTS if resolve_other(name) == DEFAULT_SETTINGS] == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            {"scalableTopicMaxSegments": "16", "scalableTopicMinSegments": "2"},
            replace(
                DEFAULT_SETTINGS,
                auto_scale=replace(DEFAULT_AUTO_SCALE, max_segments=16, min_segments=2),
            ),
        ),
        (
            {"scalableTopicAutoScaleEnabled": "False"},
            replace(DEFAULT_SETTINGS, auto_scale=replace(DEFAULT_AUTO_SCALE, enabled=False)),
        ),
        (
            {"scalableTopicAutoScaleIntervalSeconds": "1.5"},
            replace(DEFAULT_SETTINGS, auto_scale_interval_ms=1_500),
        ),
        (
            {
                "scalableTopicLoadReportIntervalSeconds": "0.5",
                "scalableTopicLoadReportRateChangeThreshold": "1e-1",
            },
            replace(DEFAULT_SETTINGS, load_reporting=LoadReporting(500, 0.1)),
        ),
        (
            {"loadBalancerSheddingIntervalMinutes": "0.25", "loadBalancerEnabled": "false"},
            replace(
                DEFAULT_SETTINGS,
                balance=replace(DEFAULT_BALANCE, interval_seconds=15, enabled=False),
            ),
        ),
    ],
)
def test_overrides_are_read_by_name(texts, expected):
    assert resolve(texts) == lenient(texts) == expected


@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1e999", "0x10", "1_000", " 1"])
def test_a_text_of_another_kind_is_refused_by_name(text):
    assert [name for name in DEFAULT_TEXTS if not problem({name: text}).startswith(name)] == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"scalableTopicMinSegments": "0"}, "scalableTopicMinSegments is 0, at least 1 is needed"),
        ({"scalableTopicMaxSegments": "1.5"}, "scalableTopicMaxSegments is 1.5, a whole number"),
        ({"scalableTopicMinSegments": "65"}, "scalableTopicMaxSegments is 64, at least 65"),
        (
            {"scalableTopicSplitMsgRateInThreshold": "1000"},
            "scalableTopicSplitMsgRateInThreshold is 1000, more than "
            "scalableTopicMergeMsgRateInThreshold is needed",
        ),
        ({"scalableTopicSplitCooldownSeconds": "-1"}, "scalableTopicSplitCooldownSeconds is -1"),
        ({"scalableTopicAutoScaleIntervalSeconds": "0"}, "scalableTopicAutoScaleIntervalSeconds"),
        ({"scalableTopicLoadReportIntervalSeconds": "3601"}, "scalableTopicLoadReportInterval"),
        ({"scalableTopicLoadReportRateChangeThreshold": "1.01"}, "scalableTopicLoadReportRate"),
        ({"loadBalancerGoalPermille": "101"}, "loadBalancerGoalPermille is 101, at most"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(texts, message):
    with pytest.raises(InvalidSetting) as refused:
        resolve(texts)

    assert str(refused.value).startswith(message)


def test_a_name_that_is_no_setting_is_refused():
    with pytest.raises(UnknownSetting, match=r"^brokerName is no dynamic setting"):
        resolve({"brokerName": "1"})


def test_setting_text_characters_max_are_read_and_one_more_is_refused():
    name = "scalableTopicMaxSegments"
    text = "64".rjust(SETTING_TEXT_CHARACTERS_MAX, "0")

    assert resolve({name: text}) == DEFAULT_SETTINGS
    assert problem({name: f"0{text}"}).startswith(f"{name} has {SETTING_TEXT_CHARACTERS_MAX + 1}")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"ofALaterRelease": "1", "scalableTopicMaxSegments": "3"}, {"max_segments": 3}),
        ({"scalableTopicAutoScaleIntervalSeconds": "soon"}, {}),
        ({"scalableTopicMinSegments": "65"}, {"enabled": False}),
        ({"scalableTopicMaxSegments": "auto", "scalableTopicMinSegments": "2"}, {"enabled": False}),
    ],
)
def test_a_node_takes_what_it_understands_and_turns_off_what_contradicts_itself(texts, expected):
    policy = replace(DEFAULT_AUTO_SCALE, **expected)

    assert lenient(texts) == replace(DEFAULT_SETTINGS, auto_scale=policy)


def test_a_balance_that_contradicts_itself_is_turned_off():
    settings = lenient({"loadBalancerGoalPermille": "101", "scalableTopicMaxSegments": "3"})

    assert settings.balance == replace(DEFAULT_BALANCE, enabled=False)
    assert settings.auto_scale.max_segments == 3


def test_the_values_in_force_are_the_overrides_and_the_defaults():
    found = runtime_texts({"scalableTopicMaxSegments": "016", "ofALaterRelease": "1"})

    assert found == {**DEFAULT_TEXTS, "scalableTopicMaxSegments": "016"}


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("shardTopicsMax", SHARD_TOPICS_SETTING_MAX),
        ("shardCommandsPerSecondMax", SHARD_COMMANDS_SETTING_MAX),
    ],
)
def test_up_to_shard_topics_setting_max_and_shard_commands_setting_max_a_shard_may_have(name, most):
    sizing = resolve({name: str(most)}).shard_sizing
    assert most in (sizing.topics_max, sizing.commands_per_second_max)
    assert resolve({name: "0"}) == DEFAULT_SETTINGS
    for value in (str(most + 1), "-1"):
        assert problem({name: value}).startswith(f"{name} is {value}, 0 to {most} are allowed")
        assert lenient({name: value}) == DEFAULT_SETTINGS


def test_topics_of_a_shard_are_whole():
    assert problem({"shardTopicsMax": "0.5"}) == "shardTopicsMax is 0.5, a whole number is needed"
    assert resolve({"shardCommandsPerSecondMax": "0.5"}).shard_sizing.commands_per_second_max == 0.5


def test_the_silence_of_a_lost_node_has_a_bound():
    at_limit = resolve({NODE_LOST_AFTER: str(NODE_LOST_SECONDS_MAX)})

    assert at_limit.replicas.node_lost_ms == 1_000 * NODE_LOST_SECONDS_MAX
    assert resolve({NODE_LOST_AFTER: "0"}).replicas.node_lost_ms == 0
    assert resolve({NODE_LOST_AFTER: "2.5"}).replicas.node_lost_ms == 2_500
    for text in (str(NODE_LOST_SECONDS_MAX + 1), "-1", "soon"):
        assert problem({NODE_LOST_AFTER: text}).startswith(NODE_LOST_AFTER)
