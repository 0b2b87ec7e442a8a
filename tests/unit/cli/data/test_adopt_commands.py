"""``nextgen adopt``, without a cluster: usage, and what is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.data import adopt_commands
from nextgen.kernel.errors import Refused
from nextgen.kernel.routing.names import parse_namespace
from nextgen.main import app
from nextgen.migration.adoption.adoption import Progress
from nextgen.migration.adoption.plan import (
    Facts,
    OwnNamespace,
    PulsarNamespace,
    StockBroker,
    make_plan,
)
from nextgen.migration.importer import ImportReport
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.scalable_client.certificates import Authority

ADMIN = ("--pulsar-admin", "http://127.0.0.1:1")
FACTS = Facts(
    namespace=parse_namespace("acme/orders"),
    in_pulsar=PulsarNamespace({}, (), is_deleted=False, topics={"persistent://acme/orders/eu": 4}),
    here=OwnNamespace(has_tenant=True, exists=False, is_deleting=False),
    pulsar_brokers=("b1:8080",),
    stock_brokers=(StockBroker("stock-1", "b1:8080", "5.0.0-M1", 50_000, 12),),
    settings={},
)

runner = CliRunner()


@pytest.mark.parametrize("verb", ["plan", "run", "undo"])
def test_wrong_usage_touches_nothing(verb: str) -> None:
    for arguments, code in (
        (("acme/orders",), ExitCode.USAGE),
        (("acme/orders", "--pulsar-admin", "broker:8080"), ExitCode.USAGE),
        (("acme", *ADMIN), ExitCode.REFUSED),
        (("acme/a/b", *ADMIN), ExitCode.REFUSED),
    ):
        result = runner.invoke(app, ["adopt", verb, *arguments])
        assert result.exit_code == code, (arguments, result.output)


@pytest.mark.parametrize("verb", ["plan", "run", "undo"])
def test_how_pulsar_lets_one_in_is_checked_before_anybody_is_asked(
    verb: str, tmp_path: Path
) -> None:
    secret = "a token with spaces"
    file = tmp_path / "token"
    file.write_text(secret)
    by_tls = ("--pulsar-admin", "https://127.0.0.1:1")
    absent = str(tmp_path / "absent")
    authority = Authority(tmp_path)
    cert = ("--pulsar-admin-cert-file", str(authority.own.certificate))
    key = ("--pulsar-admin-key-file", str(authority.own.key))
    other_key = ("--pulsar-admin-key-file", str(authority.signed("other").key))
    for arguments, code, why in (
        ((*ADMIN, "--token", "a", "--pulsar-admin-token-file", "b"), ExitCode.USAGE, "give one"),
        ((*ADMIN, "--pulsar-admin-ca-file", absent), ExitCode.USAGE, "for https://"),
        ((*ADMIN, "--token", secret), ExitCode.CANNOT_RUN, "--token holds no token"),
        ((*ADMIN, "--pulsar-admin-token-file", str(file)), ExitCode.CANNOT_RUN, "holds no token"),
        ((*ADMIN, "--pulsar-admin-token-file", absent), ExitCode.CANNOT_RUN, "cannot be read"),
        ((*by_tls, "--pulsar-admin-ca-file", absent), ExitCode.CANNOT_RUN, "cannot be read"),
        ((*by_tls, "--pulsar-admin-ca-file", str(file)), ExitCode.CANNOT_RUN, "no certificate"),
        ((*by_tls, *cert), ExitCode.USAGE, "give both"),
        ((*by_tls, *key), ExitCode.USAGE, "give both"),
        ((*ADMIN, *cert, *key), ExitCode.USAGE, "for https://"),
        ((*by_tls, *cert, *other_key), ExitCode.CANNOT_RUN, "is not the key of"),
        ((*by_tls, *cert, key[0], absent), ExitCode.CANNOT_RUN, "cannot be read"),
        ((*by_tls, cert[0], absent, *key), ExitCode.CANNOT_RUN, "cannot be read"),
        ((*by_tls, cert[0], str(file), *key), ExitCode.CANNOT_RUN, "no certificate"),
    ):
        result = runner.invoke(
            app, ["adopt", verb, "acme/orders", *arguments, "--target", "127.0.0.1:1"]
        )
        assert result.exit_code == code, (arguments, result.output)
        assert why in " ".join(result.output.split()), (arguments, result.output)
        assert secret not in result.output


@pytest.mark.parametrize("verb", ["run", "undo"])
@pytest.mark.parametrize("rate", [0, adopt_commands.RATE_MAX + 1])
def test_a_rate_is_bounded(verb: str, rate: int) -> None:
    result = runner.invoke(app, ["adopt", verb, "acme/orders", *ADMIN, "--rate", str(rate)])

    assert result.exit_code == ExitCode.USAGE


def test_a_plan_says_what_would_be_created(capsys: pytest.CaptureFixture[str]) -> None:
    adopt_commands._print_plan(make_plan(FACTS))

    printed = capsys.readouterr().out
    assert "1, with 4 partitions" in printed
    assert "stock-1" in printed
    assert "nothing hinders it" in printed


def test_a_plan_says_what_hinders_it_and_what_nobody_has_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brokers = tuple(f"b{number}:8080" for number in range(1, 30))

    adopt_commands._print_plan(make_plan(replace(FACTS, pulsar_brokers=brokers, settings=None)))

    printed = capsys.readouterr().out
    assert "hinders: broker b2:8080 has no sidecar" in printed
    assert "9 more, see --json" in printed


def test_a_plan_notes_topics_that_nobody_serves(capsys: pytest.CaptureFixture[str]) -> None:
    count = adopt_commands.REMARKS_SHOWN_MAX + 2
    late = {f"persistent://acme/orders/{number}": 2 for number in range(count)}
    of_pulsar = PulsarNamespace({"nextgen.placement": "topic"}, (), is_deleted=False, topics=late)

    adopt_commands._print_plan(make_plan(replace(FACTS, in_pulsar=of_pulsar)))

    printed = " ".join(capsys.readouterr().out.split())
    assert "note: persistent://acme/orders/0 has 2 partitions and is served by no" in printed
    assert "2 more notes, see --json" in printed
    assert "nothing hinders it" in printed


def test_lines_of_json_show_each_step_and_then_once_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(adopt_commands.time, "monotonic", lambda: now[0])
    show = adopt_commands._json_lines()

    for step, done, after_s in (
        ("claiming", 0, 0),
        ("claiming", 1, 0.5),
        ("claiming", 2, 0.5),
        ("settling", 0, 0),
        ("settling", 1, 0.9),
    ):
        now[0] += after_s
        show(Progress(step, done, 9))

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["step"], each["done"]) for each in lines] == [
        ("claiming", 0),
        ("claiming", 2),
        ("settling", 0),
    ]


def test_what_cannot_be_created_here_ends_a_run() -> None:
    report = ImportReport()
    adopt_commands._check(report)
    report.refusals.add("persistent://acme/orders/eu", "LIMIT_EXCEEDED: too many topics")

    with pytest.raises(Refused, match="too many topics"):
        adopt_commands._check(report)
