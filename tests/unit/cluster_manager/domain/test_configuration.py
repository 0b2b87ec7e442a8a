"""The configuration: the next version of what makes sense is taken, everything else refused."""

from __future__ import annotations

import pytest

from cluster_manager.domain.cluster import INITIAL, decide_set_configuration, fold_events
from cluster_manager.domain.configuration import (
    Configuration,
    ConfigurationSet,
    SetConfiguration,
)
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.placement import SETTINGS_MAX

HELD = Configuration(1, {"scalableTopicMaxSegments": "16"})


def decided(configuration: Configuration, *held: Configuration, more: int = 0) -> object:
    state = fold_events(INITIAL, map(ConfigurationSet, held))
    command = SetConfiguration(configuration, len(configuration.settings) + more)
    return decide_set_configuration(state, command)


def refusal(configuration: Configuration, *held: Configuration) -> tuple[RejectionCode, str]:
    decision = decided(configuration, *held)
    assert isinstance(decision, Rejected), decision
    return decision.code, decision.message


def test_the_first_configuration_is_of_version_one() -> None:
    assert decided(HELD) == Accepted((ConfigurationSet(HELD),))
    assert fold_events(INITIAL, [ConfigurationSet(HELD)]).configuration == HELD


def test_the_same_configuration_twice_is_one_event() -> None:
    assert decided(HELD, HELD) == Accepted(())


@pytest.mark.parametrize("version", [0, 1, 3])
def test_a_version_that_is_not_the_next_is_refused(version: int) -> None:
    code, why = refusal(Configuration(version), HELD)

    assert code is RejectionCode.VERSION_MISMATCH
    assert f"the next is 2: this is {version}" in why


def test_an_empty_configuration_takes_the_overrides_away() -> None:
    assert decided(Configuration(2), HELD) == Accepted((ConfigurationSet(Configuration(2)),))


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("brokerShutdownTimeoutMs", "1", RejectionCode.NOT_FOUND),
        ("scalableTopicMinSegments", "0", RejectionCode.NOT_ALLOWED),
        ("scalableTopicMaxSegments", "many", RejectionCode.NOT_ALLOWED),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(
    name: str, text: str, code: RejectionCode
) -> None:
    refused, why = refusal(Configuration(2, {**HELD.settings, name: text}), HELD)

    assert (refused, why.split()[0]) == (code, name)


def test_settings_that_make_sense_alone_are_refused_if_they_do_not_together() -> None:
    code, why = refusal(Configuration(2, {**HELD.settings, "scalableTopicMinSegments": "17"}), HELD)

    assert code is RejectionCode.NOT_ALLOWED
    assert why == "scalableTopicMaxSegments is 16, at least 17 is needed"


def test_a_name_of_a_later_release_may_stay_and_go_but_not_change() -> None:
    later = Configuration(1, {"ofALaterRelease": "1"})

    assert isinstance(
        decided(Configuration(2, {**later.settings, **HELD.settings}), later), Accepted
    )
    assert isinstance(decided(Configuration(2), later), Accepted)
    assert refusal(Configuration(2, {"ofALaterRelease": "2"}), later)[0] is RejectionCode.NOT_FOUND


def test_a_name_that_comes_twice_is_refused() -> None:
    decision = decided(HELD, more=1)

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_settings_max_are_taken_and_one_more_is_refused() -> None:
    most = {f"ofALaterRelease{number}": "1" for number in range(SETTINGS_MAX)}
    held = Configuration(1, most)

    assert isinstance(decided(Configuration(2, most), held), Accepted)
    one_more = refusal(Configuration(2, {**most, **HELD.settings}), held)
    assert one_more[0] is RejectionCode.LIMIT_EXCEEDED
    assert f"{SETTINGS_MAX + 1} settings" in one_more[1]
