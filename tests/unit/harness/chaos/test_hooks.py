"""Commands by which an operator has his nodes broken."""

from __future__ import annotations

import sys

import pytest

from nextgen.harness.chaos.faults.hooks import (
    HOOK_TIMEOUT_DEFAULT_MS,
    HOOK_TIMEOUT_MS_MAX,
    HOOKS_FILE_BYTES_MAX,
    hooks_of,
    load_hooks,
    run_hook,
)
from nextgen.harness.chaos.schedule import FaultKind, Group
from nextgen.kernel.errors import DeadlineExceeded, RefusesToStart, Unavailable

VALUES = {"node": "shard-node-1; rm -rf /", "grpc": "10.0.0.1:7100", "group": "shard-node"}
KILL = {"begin": "stop {node}", "end": "start {node}"}


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_toml_and_json_say_the_same(tmp_path):
    toml, as_json = tmp_path / "hooks.toml", tmp_path / "hooks.json"
    toml.write_text('timeout_ms = 5\n[kill]\nbegin = "stop {node}"\nend = "start \\"{node}\\""\n')
    as_json.write_text(
        '{"timeout_ms": 5, "kill": {"begin": "stop {node}", "end": "start \\"{node}\\""}}'
    )

    hooks = load_hooks(toml)

    assert load_hooks(as_json) == hooks
    assert hooks.by_kind[FaultKind.KILL].begin == ("stop", "{node}")
    assert hooks.timeout_ms == 5


def test_without_groups_a_hook_is_for_all_of_them():
    hooks = hooks_of({"kill": KILL, "pause": KILL | {"groups": ["broker"]}})

    assert hooks.by_kind[FaultKind.KILL].groups == frozenset(Group)
    assert hooks.by_kind[FaultKind.PAUSE].groups == {Group.BROKER}
    assert hooks.timeout_ms == HOOK_TIMEOUT_DEFAULT_MS


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        '[flood]\nbegin = "a"\nend = "b"',
        '[transfer]\nbegin = "a"\nend = "b"',
        '[kill]\nbegin = "a"',
        '[kill]\nbegin = ""\nend = "b"',
        '[kill]\nbegin = "a {host}"\nend = "b"',
        '[kill]\nbegin = "a"\nend = "b"\ngroups = ["clients"]',
        '[kill]\nbegin = "a"\nend = "b"\nafter = "c"',
        "kill = 7",
        "timeout_ms = 0",
        f"timeout_ms = {HOOK_TIMEOUT_MS_MAX + 1}",
    ],
)
def test_what_is_not_understood_is_refused_by_name_of_the_file(tmp_path, text):
    path = tmp_path / "hooks.toml"
    path.write_text(text)

    with pytest.raises(RefusesToStart, match=r"hooks\.toml"):
        load_hooks(path)


def test_a_file_has_a_limit(tmp_path):
    path = tmp_path / "hooks.toml"
    path.write_text(" " * HOOKS_FILE_BYTES_MAX)

    assert load_hooks(path).by_kind == {}
    path.write_text(" " * (HOOKS_FILE_BYTES_MAX + 1))
    with pytest.raises(RefusesToStart):
        load_hooks(path)
    with pytest.raises(RefusesToStart):
        load_hooks(tmp_path / "missing.toml")


def test_a_timeout_may_be_as_long_as_its_limit():
    assert hooks_of({"timeout_ms": HOOK_TIMEOUT_MS_MAX}).timeout_ms == HOOK_TIMEOUT_MS_MAX


async def test_what_is_put_into_a_command_stays_one_word(tmp_path):
    told = tmp_path / "told"
    words = (*python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])"), str(told), "{node}")

    await run_hook(words, VALUES, timeout_ms=20_000)

    assert told.read_text() == VALUES["node"]


async def test_a_failed_command_is_reported_with_its_output():
    with pytest.raises(Unavailable, match=r"ended with 3: no such host"):
        await run_hook(python("print('no such host'); exit(3)"), VALUES, timeout_ms=20_000)
    with pytest.raises(Unavailable, match="cannot be run"):
        await run_hook(("/does/not/exist",), VALUES, timeout_ms=20_000)


async def test_a_command_that_hangs_is_killed():
    with pytest.raises(DeadlineExceeded):
        await run_hook(python("import time; time.sleep(600)"), VALUES, timeout_ms=1)
