"""The settings of automatic splits and merges: levels, defaults, and what is refused."""

from __future__ import annotations

import json

import pytest

from nextgen.kernel.governance.auto_scale_policy import (
    DEFAULT_AUTO_SCALE,
    AutoScalePolicy,
    InvalidAutoScale,
    problem,
    resolve,
)


def test_each_level_overrides_the_fields_that_it_sets():
    namespace = '{"maxSegments": 8, "minSegments": 2, "other": {"of": "a later release"}}'
    topic = '{"minSegments": 3, "enabled": false, "maxDagDepth": null}'

    resolved = resolve(DEFAULT_AUTO_SCALE, namespace, topic)

    assert resolved == AutoScalePolicy(enabled=False, max_segments=8, min_segments=3)
    assert resolve(DEFAULT_AUTO_SCALE, "", "") == DEFAULT_AUTO_SCALE


def test_a_policys_text_has_every_field_under_pulsars_name():
    values = json.loads(DEFAULT_AUTO_SCALE.text)

    assert resolve(AutoScalePolicy(max_segments=1), DEFAULT_AUTO_SCALE.text) == DEFAULT_AUTO_SCALE
    assert values["splitVsRebucketMinMsgRateInThreshold"] == 1_000
    assert values["mergeBytesRateOutThreshold"] == 25_000_000
    assert len(values) == 17


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("minSegments", 0),
        ("maxSegments", 0),
        ("maxDagDepth", -1),
        ("splitCooldownSeconds", -1),
        ("mergeCooldownSeconds", -1),
        ("rebucketCooldownSeconds", -1),
        ("mergeWindowSeconds", -1),
        ("splitMsgRateInThreshold", 0),
        ("splitMsgRateInThreshold", float("nan")),
        ("splitBytesRateOutThreshold", float("inf")),
        ("splitVsRebucketMinMsgRateInThreshold", -1),
        ("mergeMsgRateOutThreshold", -0.5),
        ("maxSegments", "many"),
        ("maxSegments", 2.5),
        ("enabled", 1),
        ("maxSegments", True),
        # Below the other level's, or the default, of its pair.
        ("splitMsgRateInThreshold", 1_000),
        ("mergeBytesRateInThreshold", 50_000_000),
    ],
)
def test_an_absurd_value_is_refused_with_its_fields_name(field, value):
    with pytest.raises(InvalidAutoScale) as refused:
        resolve(DEFAULT_AUTO_SCALE, json.dumps({field: value}))

    name = field.replace("merge", "split") if value == 50_000_000 else field
    assert str(refused.value).startswith(name)


def test_levels_that_make_sense_alone_are_refused_if_they_do_not_together():
    with pytest.raises(InvalidAutoScale, match=r"^maxSegments is 4, at least 5"):
        resolve(DEFAULT_AUTO_SCALE, '{"maxSegments": 4}', '{"minSegments": 5}')


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(InvalidAutoScale, match=r"^scalableTopicAutoScalePolicy"):
        resolve(DEFAULT_AUTO_SCALE, text)


def test_a_merge_threshold_of_zero_is_valid():
    text = '{"mergeMsgRateInThreshold": 0}'

    assert resolve(DEFAULT_AUTO_SCALE, text).merge_msg_rate_in_threshold == 0
    assert problem({"mergeMsgRateInThreshold": 0, "splitMsgRateInThreshold": None}) == ""
