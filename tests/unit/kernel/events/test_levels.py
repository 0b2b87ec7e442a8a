"""Levels of events: their numbers, and what is said where one is not known."""

from __future__ import annotations

import pytest

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.events.levels import (
    CONFIGURATION_LEVEL,
    EVENT_LEVEL,
    EVENT_LEVEL_MAX,
    EVENT_LEVEL_UNREPORTED,
    not_known_everywhere,
)


def test_this_program_knows_more_than_one_that_says_nothing():
    assert EVENT_LEVEL_UNREPORTED < CONFIGURATION_LEVEL <= EVENT_LEVEL <= EVENT_LEVEL_MAX


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        (["b"], "shard 3: b is not known to know such events: upgrade or start it first"),
        (
            ["b", "c"],
            "shard 3: b, c are not known to know such events: upgrade or start them first",
        ),
    ],
)
def test_members_that_are_behind_are_named(members, sentence):
    refused = not_known_everywhere("shard 3", members, "such events")

    assert str(refused) == sentence
    assert refused.code == RejectionCode.NOT_ALLOWED
