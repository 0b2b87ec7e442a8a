"""The settings of automatic splits and merges: levels, defaults, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_FIELDS,
    DEFAULT_AUTO_SCALE,
    AutoScalePolicy,
    InvalidAutoScale,
    problem,
    resolve,
)
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.scalable import AUTO_SCALE_NUMBER_MAX
from nextgen.kernel.scalable.auto_scale import GroupSizes, ScaleClocks, decide
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment


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
        pytest.param("maxSegments", 10**400, id="too long, whole"),
        pytest.param("splitMsgRateInThreshold", 10**400, id="too long, rate"),
        pytest.param("mergeMsgRateInThreshold", -(10**400), id="too long, negative"),
        ("mergeWindowSeconds", 1e306),
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


def test_auto_scale_number_max_is_taken_and_one_more_is_refused():
    taken = resolve(DEFAULT_AUTO_SCALE, f'{{"mergeWindowSeconds": {AUTO_SCALE_NUMBER_MAX}}}')

    assert taken.merge_window_seconds == AUTO_SCALE_NUMBER_MAX
    for value in (AUTO_SCALE_NUMBER_MAX + 1, AUTO_SCALE_NUMBER_MAX + 1.0):
        with pytest.raises(InvalidAutoScale, match=r"^mergeWindowSeconds is more than"):
            resolve(DEFAULT_AUTO_SCALE, f'{{"mergeWindowSeconds": {value}}}')


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", "[" * 100_000, '{"maxSegments": ' + "9" * 5_000 + "}"]
)
def test_what_is_no_object_is_refused(text):
    with pytest.raises(InvalidAutoScale, match=r"^scalableTopicAutoScalePolicy"):
        resolve(DEFAULT_AUTO_SCALE, text)


def test_a_merge_threshold_of_zero_is_valid():
    text = '{"mergeMsgRateInThreshold": 0}'

    assert resolve(DEFAULT_AUTO_SCALE, text).merge_msg_rate_in_threshold == 0
    assert problem({"mergeMsgRateInThreshold": 0, "splitMsgRateInThreshold": None}) == ""


_NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, 1, -1, AUTO_SCALE_NUMBER_MAX, AUTO_SCALE_NUMBER_MAX + 1, 10**400, 1e308]),
)
_OVERRIDES = st.dictionaries(
    st.sampled_from(AUTO_SCALE_FIELDS), st.one_of(_NUMBERS, st.none(), st.booleans(), st.text())
)


@given(_OVERRIDES, _OVERRIDES)
def test_whatever_levels_say_it_is_refused_with_a_fields_name_or_can_be_decided_by(first, second):
    """No override makes an evaluation fail later."""
    try:
        policy = resolve(DEFAULT_AUTO_SCALE, json.dumps(first), json.dumps(second))
    except InvalidAutoScale as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert refused.split()[0] in AUTO_SCALE_FIELDS
        return
    halves = [Segment(0, 0, 0x7FFF, 0, 1), Segment(1, 0x8000, 0xFFFF, 0, 1)]
    loads = {each: SegmentLoad(each, Rates(1e17, 0.0, 1e-9, 5.0), 9_000, 9_000) for each in (0, 1)}

    found = decide(halves, loads, GroupSizes(3, 3), policy, ScaleClocks(1, 1, 1), 10_000)

    assert 0 <= found.again_at_ms <= 10_000 + 1_000 * AUTO_SCALE_NUMBER_MAX
    assert resolve(DEFAULT_AUTO_SCALE, policy.text) == policy
