"""The pinned library is the one that our overrides were written for."""

from __future__ import annotations

import pytest
from pysyncobj import SyncObj

from nextgen.kernel.errors import RefusesToStart
from nextgen.replication.election import library_check as pysyncobj_check
from nextgen.replication.election.library_check import (
    EXPECTED_MEMBERS,
    check_library,
    list_differences,
)
from nextgen.replication.election.overrides import HardenedSyncObj


def test_the_installed_library_is_the_expected_one() -> None:
    check_library()


def test_another_version_of_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pysyncobj_check, "version", lambda _name: "0.3.18")

    with pytest.raises(RefusesToStart, match=r"0\.3\.18 is installed"):
        check_library()


def test_a_library_with_another_member_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pysyncobj_check, "list_differences", lambda _library: ["_onTick is missing"]
    )

    with pytest.raises(RefusesToStart, match="_onTick is missing"):
        check_library()


def test_a_member_that_is_missing_or_has_other_parameters_is_named() -> None:
    class Changed:
        def _onTick(self, timeToWait: float, more: int) -> None: ...

    problems = list_differences(Changed)

    assert "_onTick has other parameters" in problems
    assert "_SyncObj__onBecomeLeader is missing" in problems
    assert "the attribute __raftLog is missing" in problems


def test_every_mangled_member_that_we_override_is_checked() -> None:
    overridden = {
        name
        for name in vars(HardenedSyncObj)
        if hasattr(SyncObj, name) and not name.startswith("__") and callable(getattr(SyncObj, name))
    }

    assert overridden <= set(EXPECTED_MEMBERS)
