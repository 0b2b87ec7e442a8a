import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold


def appended(state: tuple[int, ...], event: int) -> tuple[int, ...]:
    return (*state, event)


def test_fold_applies_events_in_order() -> None:
    assert fold(appended, (0,), [1, 2, 3]) == (0, 1, 2, 3)


def test_folding_nothing_changes_nothing() -> None:
    assert fold(appended, (7,), []) == (7,)


@given(st.lists(st.integers()), st.lists(st.integers()))
def test_folding_in_two_batches_is_folding_at_once(first: list[int], second: list[int]) -> None:
    assert fold(appended, fold(appended, (), first), second) == fold(appended, (), first + second)


def test_decisions_are_values() -> None:
    assert Accepted((1,)) == Accepted((1,))
    assert Rejected(RejectionCode.NOT_FOUND, "no topic") == Rejected(
        RejectionCode.NOT_FOUND, "no topic"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        Accepted(()).events = (1,)  # type: ignore[misc]


def test_rejection_codes_never_change() -> None:
    """They are stored by callers. Add to this list; never alter or remove a line."""
    stored = {
        "NOT_FOUND", "ALREADY_EXISTS", "PARENT_NOT_FOUND", "NOT_EMPTY", "VERSION_MISMATCH",
        "LIMIT_EXCEEDED", "INVALID_NAME", "NOT_ALLOWED", "PARTITIONED", "NO_CAPACITY",
        "NO_BROKER", "SESSION_EXPIRED", "STALE_EPOCH", "SHARE_EXCEEDED",
    }  # fmt: skip

    assert stored <= {code.value for code in RejectionCode}
    assert all(code.name == code.value for code in RejectionCode)
