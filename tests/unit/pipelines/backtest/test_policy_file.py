"""The file of a changed policy: what it may say, and how it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.backtest.model import ChangedPolicy
from pipelines.backtest.policy_file import read_policy
from pipelines.errors import JobRefused


def written(path: Path, content: Any) -> Path:
    file = path / "policy.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_fields_are_of_the_service_and_of_namespaces_by_either_name(tmp_path: Path) -> None:
    content = {
        "splitMsgRateInThreshold": 5_000,
        "scalableTopicMergeWindowSeconds": 60,
        "scalableTopicAutoScaleEnabled": True,
        "namespaces": {"acme/orders": {"maxSegments": 16}, "acme/none": {}},
    }

    assert read_policy(written(tmp_path, content)) == ChangedPolicy(
        '{"enabled":true,"mergeWindowSeconds":60,"splitMsgRateInThreshold":5000}',
        {"acme/orders": '{"maxSegments":16}', "acme/none": ""},
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"splitMsgRateIn": 1}, "splitMsgRateIn is no field of a policy; there are enabled,"),
        ({"minSegments": 0}, "minSegments is 0, at least 1 is needed"),
        ({"splitCooldownSeconds": -1}, "splitCooldownSeconds is -1, at least 0 is needed"),
        ({"splitMsgRateInThreshold": "x"}, "splitMsgRateInThreshold is no number"),
        (
            {"splitMsgRateInThreshold": 900},
            "splitMsgRateInThreshold is 900, more than mergeMsgRateInThreshold is needed",
        ),
        (
            {"minSegments": 8, "namespaces": {"a/b": {"maxSegments": 4}}},
            "a/b: maxSegments is 4, at least 8 is needed",
        ),
        ({"namespaces": {"a": {"maxSegments": 4}}}, "namespaces: "),
        ({"namespaces": {"a/b": 4}}, "the policy of a/b is no object of fields"),
        ({"namespaces": []}, "namespaces is no object of policies by namespace"),
        ({}, "changes nothing"),
        ([], "is no object of fields by Pulsar's names"),
        ('{"a": ', "is no JSON"),
        ('{"maxSegments": NaN}', "is no JSON"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_fields_name(
    tmp_path: Path, content: Any, told: str
) -> None:
    file = written(tmp_path, content)

    with pytest.raises(JobRefused) as refused:
        read_policy(file)

    assert str(refused.value).startswith(str(file))
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match="cannot be read"):
        read_policy(tmp_path / "none.json")
