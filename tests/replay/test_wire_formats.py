"""A process reads what one of the release before it sends and has stored."""

from pathlib import Path

import pytest

from tests.support.wire_formats import formats

RECORDED = Path(__file__).parent / "wire"


@pytest.mark.parametrize("release", sorted(path.stem for path in RECORDED.glob("*.txt")))
def test_contracts_of_a_release_only_grew(release: str) -> None:
    then = set((RECORDED / f"{release}.txt").read_text().splitlines())

    changed = sorted(then - formats())

    assert len(then) > 1_000
    assert changed == [], "fields, values and calls are added; they neither change nor go"
