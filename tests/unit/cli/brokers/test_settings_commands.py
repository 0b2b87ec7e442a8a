"""Settings as commands read them and programs are shown them."""

from __future__ import annotations

import pytest

from nextgen.cli.brokers.settings_commands import parse_pairs
from nextgen.cli.calls.settings_state import described
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.service_settings import DEFAULT_TEXTS
from protos.nextgen.v1.events_pb2 import ConfigurationSet, Setting


def test_pairs_are_read_by_name() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        (["a"], "'a' is not of the form NAME=VALUE"),
        (["=1"], "'=1' is not of the form NAME=VALUE"),
        (["a=1", "a=2"], "a is given twice"),
    ],
)
def test_what_is_no_pair_is_refused(pairs: list[str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse_pairs(pairs)


def test_every_setting_is_shown_with_its_value_and_its_default() -> None:
    settings = [
        Setting(name="ofALaterRelease", value="1"),
        Setting(name="scalableTopicMaxSegments", value="16"),
    ]

    shown = described(ConfigurationSet(version=3, settings=settings))

    assert shown["version"] == 3
    by_name = {each.pop("name"): each for each in shown["settings"]}
    assert by_name.keys() == {*DEFAULT_TEXTS, "ofALaterRelease"}
    assert by_name["ofALaterRelease"] == {"value": "1", "is_set": True}
    assert by_name["scalableTopicMaxSegments"] == {"value": "16", "default": "64", "is_set": True}
    assert by_name["scalableTopicMinSegments"] == {"value": "1", "default": "1", "is_set": False}
