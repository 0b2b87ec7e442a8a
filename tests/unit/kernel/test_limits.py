import ast
from pathlib import Path

import pytest

from nextgen.kernel import limits

TREE = ast.parse(Path(limits.__file__).read_text())
ASSIGNED = [
    (statement.targets[0].id, following)
    for statement, following in zip(TREE.body, [*TREE.body[1:], None], strict=True)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
]


@pytest.mark.parametrize(("name", "following"), ASSIGNED, ids=[name for name, _ in ASSIGNED])
def test_every_limit_says_its_reason(name: str, following: ast.stmt | None) -> None:
    assert isinstance(following, ast.Expr), f"{name} has no docstring"
    assert isinstance(following.value, ast.Constant), f"{name} has no docstring"
    assert len(str(following.value.value)) > 20


def test_every_limit_is_positive() -> None:
    assert all(getattr(limits, name) > 0 for name, _ in ASSIGNED)


def test_the_limits_fit_into_each_other() -> None:
    assert limits.SLOT_COUNT & (limits.SLOT_COUNT - 1) == 0, "slots are cut off by a mask"
    assert limits.SLOT_COUNT // limits.SHARDS_MAX >= 4
    assert limits.RECORD_BYTES_MAX <= limits.ENTRY_BYTES_MAX
    assert limits.ENTRY_BYTES_MAX <= limits.PROPOSE_QUEUE_BYTES_MAX
    assert limits.PAGE_ITEMS_DEFAULT <= limits.PAGE_ITEMS_MAX
    assert limits.PROPERTY_KEY_BYTES_MAX + limits.PROPERTY_VALUE_BYTES_MAX <= (
        limits.PROPERTIES_BYTES_MAX
    )
    assert (
        len("non-persistent://")
        + 2 * (limits.NAME_PART_BYTES_MAX + 1)
        + limits.TOPIC_LOCAL_NAME_BYTES_MAX
    ) < limits.TOPIC_TEXT_CHARACTERS_MAX
