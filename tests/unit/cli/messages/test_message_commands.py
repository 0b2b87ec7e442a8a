"""``produce``, ``consume`` and ``read``: what they print, and how they end without a cluster."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.console.options import service_url_of
from nextgen.cli.local.plan import MINIMAL, make_plan
from nextgen.cli.messages import commands as message_commands
from nextgen.kernel.errors import RefusesToStart
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode

runner = CliRunner()


class FakeMessage:
    def __init__(self, data: bytes, *, key: str = "", redelivered: int = 0) -> None:
        self._data = data
        self._key = key
        self._redelivered = redelivered

    def data(self) -> bytes:
        return self._data

    def topic_name(self) -> str:
        return "persistent://public/default/t"

    def partition_key(self) -> str:
        return self._key

    def properties(self) -> dict[str, str]:
        return {"colour": "red"}

    def publish_timestamp(self) -> int:
        return 1_700_000_000_123

    def redelivery_count(self) -> int:
        return self._redelivered

    def message_id(self) -> FakeMessage:
        return self

    def ledger_id(self) -> int:
        return 3

    def entry_id(self) -> int:
        return 9

    def partition(self) -> int:
        return -1

    def batch_index(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("127.0.0.1:6650", "pulsar://127.0.0.1:6650"),
        ("pulsar://a:1,b:2/", "pulsar://a:1,b:2"),
        ("a:1, b:2", "pulsar://a:1,b:2"),
        ("[::1]:6650", "pulsar://[::1]:6650"),
        ("pulsar+ssl://a:1", "pulsar+ssl://a:1"),
    ],
)
def test_a_target_is_a_service_url_or_the_addresses_of_one(target: str, url: str, tmp_path: Path):
    assert service_url_of(target, tmp_path) == url


@pytest.mark.parametrize("target", ["http://a:1", "pulsar+ssl://a", "a", "pulsar://a"])
def test_another_target_is_refused(target: str, tmp_path: Path):
    with pytest.raises(RefusesToStart, match="host:port"):
        service_url_of(target, tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [["produce", "t", "hello"], ["consume", "t", "-s", "mine"], ["read", "t"]],
)
def test_without_a_cluster_it_says_what_to_do(tmp_path: Path, arguments: list[str]):
    absent = runner.invoke(app, [*arguments, "--data-dir", str(tmp_path)])
    make_plan(MINIMAL).save(tmp_path)
    stopped = runner.invoke(app, [*arguments, "--data-dir", str(tmp_path)])

    for result, why in ((absent, "no local cluster"), (stopped, "does not run")):
        assert result.exit_code == ExitCode.CANNOT_RUN
        assert why in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["produce", "acme/orders", "hello"], ExitCode.REFUSED),
        (["read", "persistent://a/b/c/d"], ExitCode.REFUSED),
        (["produce", "t", "--count", "2"], ExitCode.USAGE),
        (["consume", "t"], ExitCode.USAGE),
        (["consume", "t", "-s", "mine", "--type", "sometimes"], ExitCode.USAGE),
        (["read", "t", "--from", "yesterday"], ExitCode.USAGE),
    ],
)
def test_wrong_names_and_usage_are_reported_before_any_request(
    arguments: list[str], code: ExitCode
):
    assert runner.invoke(app, [*arguments, "--service-url", "a:1"]).exit_code == code


def test_where_nobody_listens_the_exit_code_says_so():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody else can listen there meanwhile.
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        result = runner.invoke(app, ["produce", "t", "hello", "--service-url", target])

    assert result.exit_code == ExitCode.NO_ANSWER
    assert "no process listens" in result.stderr


def test_a_message_is_one_line_in_which_nothing_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
):
    message = FakeMessage(b"a\n\x1b[31mb\xff [bold]", key="k", redelivered=1)

    message_commands._show(message, json_output=False)

    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    assert shown.startswith("22:13:20.123  3:9:-1:0  key=k  delivered 2 times  colour=red  ")
    assert r"a\n\x1b[31mb\xff [bold]" in shown


@pytest.mark.parametrize(
    ("data", "field", "text"),
    [("naïve".encode(), "data", "naïve"), (b"\xff\x00", "data_base64", "/wA=")],
)
def test_the_json_of_a_message_holds_its_bytes_exactly(
    data: bytes, field: str, text: str, capsys: pytest.CaptureFixture[str]
):
    message_commands._show(FakeMessage(data), json_output=True)

    shown = json.loads(capsys.readouterr().out)
    assert shown[field] == text
    assert (shown["message_id"], shown["publish_time_ms"]) == ("3:9:-1:0", 1_700_000_000_123)
    assert not {"data", "data_base64"} - {field} <= shown.keys()
