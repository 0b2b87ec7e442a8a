"""A run of chosen kinds of faults."""

from __future__ import annotations

import pytest

from nextgen.harness.chaos.command import _kinds
from nextgen.harness.chaos.schedule import FaultKind
from nextgen.kernel.errors import RefusesToStart


def test_all_kinds_are_made_unless_some_are_chosen():
    assert _kinds(None) == frozenset()
    assert _kinds(["kill", "clock", "kill"]) == {FaultKind.KILL, FaultKind.CLOCK}


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(RefusesToStart, match=r"--only murder is none of kill, pause, .*drain"):
        _kinds(["kill", "murder"])
