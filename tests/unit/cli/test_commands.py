"""The command line without a cluster: usage, refusals, exit codes."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.local.local_tokens import OPERATOR_ROLE, TOKENS
from nextgen.cli.local.plan import MINIMAL, make_plan, make_plan_on_free_ports
from nextgen.cli.local.supervise import choose_plan
from nextgen.cli.topics.inventory_commands import parse_properties
from nextgen.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    Refused,
    RefusesToStart,
    Unavailable,
)
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import CheckFailed, ExitCode, code_of

runner = CliRunner()


@pytest.mark.parametrize(
    "path",
    [
        ["up"],
        ["down"],
        ["status"],
        ["lookup"],
        ["move"],
        ["produce"],
        ["consume"],
        ["read"],
        ["events"],
        ["demo"],
        *[[group, verb] for group in ("tenants", "namespaces", "topics", "scalable-topics")
          for verb in ("create", "get", "list", "delete")],
        ["topics", "stats"],
        *[["topics", what] for what in (
            "create-shadow", "get-shadow-source", "set-shadows", "get-shadows", "remove-shadows",
        )],
        *[["scalable-topics", what] for what in (
            "stats", "split", "merge", "rebucket", "subscribe", "unsubscribe", "seek",
            "clear-backlog",
        )],
        *[["adopt", verb] for verb in ("plan", "run", "undo")],
        *[["nodes", what] for what in ("list", "add", "remove", "drain", "undo")],
        *[["shards", "replicas", what] for what in (
            "list", "add", "remove", "cancel", "rebalance",
        )],
        *[["shards", what] for what in (
            "list", "split", "merge", "move-slots", "rebalance", "add", "remove", "plans", "stop",
        )],
        *[["perf", what] for what in (
            "lookup", "create", "assign", "failover", "pulsar-lookup", "produce", "consume",
        )],
    ],
)  # fmt: skip
def test_every_command_explains_itself_and_speaks_json(path: list[str]):
    result = runner.invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})

    assert result.exit_code == 0
    assert "--json" in result.output


def test_a_command_without_a_cluster_says_what_to_do(tmp_path: Path):
    result = runner.invoke(app, ["lookup", "orders", "--data-dir", str(tmp_path)])

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "nextgen up" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_short_too_at_any_depth(flag: str):
    for path in ([], ["topics"], ["topics", "create"], ["pipeline"]):
        result = runner.invoke(app, [*path, flag])

        assert result.exit_code == 0
        assert "Usage:" in result.output


def test_the_release_is_shown():
    result = runner.invoke(app, ["--version"])

    assert result.exit_code == 0
    assert re.fullmatch(r"nextgen \S+\n", result.output)


@pytest.mark.parametrize("arguments", [["up"], ["up", "--detach"], ["status"], ["down"]])
def test_a_data_directory_that_is_a_file_is_named_in_one_sentence(
    tmp_path: Path, arguments: list[str]
):
    file = tmp_path / "file"
    file.write_text("")
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    options = ["--minimal", "--port-base", str(port_base)] if arguments[0] == "up" else []

    result = runner.invoke(app, [*arguments, *options, "--data-dir", str(file / "below")])

    assert result.exit_code in (ExitCode.CANNOT_RUN, ExitCode.REFUSED)
    (sentence,) = [line for line in result.stderr.splitlines() if not line.startswith("starting ")]
    assert str(file) in sentence


def test_a_malformed_target_is_refused(tmp_path: Path):
    result = runner.invoke(app, ["tenants", "list", "--target", "nowhere"])

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert "'nowhere'" in result.stderr


def test_stopping_a_cluster_that_does_not_run_is_reported(tmp_path: Path):
    result = runner.invoke(app, ["down", "--json", "--data-dir", str(tmp_path)])

    assert result.exit_code == ExitCode.REFUSED
    assert json.loads(result.stdout)["stopped"] is False


def test_up_on_a_taken_port_says_which_and_starts_nothing(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The taken port is the second one of the plan's first process that has one to spare.
        arguments = ["up", "--minimal", "--data-dir", str(tmp_path / "data")]
        result = runner.invoke(app, [*arguments, "--port-base", str(port)])

    assert result.exit_code == ExitCode.CANNOT_RUN
    assert f"127.0.0.1:{port}" in result.stderr
    assert "gRPC of discovery-1" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_property_without_a_value_is_wrong_usage():
    result = runner.invoke(app, ["tenants", "create", "t", "-p", "x", "--target", "127.0.0.1:1"])

    assert result.exit_code == ExitCode.USAGE
    assert parse_properties(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}


def test_a_stored_cluster_keeps_its_shape(tmp_path: Path):
    stored = choose_plan(tmp_path, minimal=True, shards=None, port_base=20_000)
    stored.save(tmp_path)

    assert choose_plan(tmp_path, minimal=False, shards=None, port_base=None) == stored
    with pytest.raises(RefusesToStart, match="another shape"):
        choose_plan(tmp_path, minimal=False, shards=3, port_base=None)
    with pytest.raises(RefusesToStart, match="another shape"):
        choose_plan(tmp_path, minimal=False, shards=None, port_base=21_000)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"authentication": TOKENS}, "true"),
        ({"authentication": TOKENS, "authorization": False}, None),
        ({"authorization": True}, None),
    ],
)
def test_with_tokens_roles_need_permissions_unless_that_is_switched_off(
    tmp_path: Path, options: dict, expected: str | None
):
    plan = choose_plan(tmp_path, minimal=True, shards=None, port_base=None, **options)
    for kind in ("discovery", "broker", "shard-node", "cluster-manager"):
        arguments = plan.arguments(plan.of_kind(kind)[0], tmp_path)
        flags = dict(zip(arguments[::2], arguments[1::2], strict=True))
        serves_clients = kind in ("discovery", "broker")
        assert flags.get("--authorization-enabled") == (expected if serves_clients else None)
        has_superuser = serves_clients and expected is not None
        assert flags.get("--super-user-roles") == (OPERATOR_ROLE if has_superuser else None)
    plan.save(tmp_path)
    again = choose_plan(tmp_path, minimal=False, shards=None, port_base=None)
    assert again == plan
    off = choose_plan(tmp_path, minimal=False, shards=None, port_base=None, authorization=False)
    assert (off.authorization, off.authentication) == (False, plan.authentication)


def test_shards_can_be_chosen(tmp_path: Path):
    plan = choose_plan(tmp_path, minimal=False, shards=9, port_base=None)

    assert plan == make_plan(plan.size)
    assert plan.size.shards == 9


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("NOT_FOUND", "no"), ExitCode.REFUSED),
        (InvalidRequest("bad"), ExitCode.USAGE),
        (Unavailable("gone"), ExitCode.NO_ANSWER),
        (DeadlineExceeded("late"), ExitCode.NO_ANSWER),
        (RefusesToStart("taken"), ExitCode.CANNOT_RUN),
        (CheckFailed("lost"), ExitCode.CHECK_FAILED),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(error: Exception, code: ExitCode):
    assert code_of(error) is code
