"""Drains and rebalances from the command line, with discovery played by the test."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner

from nextgen.cli.brokers import evacuation_run
from nextgen.cli.brokers.evacuation_run import Progress, drain, follow_drain, follow_rebalance
from nextgen.cli.brokers.rebalance_command import parse_rate, shown_progress
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import (
    BrokerUnits,
    DrainRequest,
    DrainResponse,
    RebalanceRequest,
    RebalanceResponse,
    SetCapacityRequest,
    SetCapacityResponse,
    UnitCountResponse,
)

runner = CliRunner()


class Discovery:
    """Answers with the next of ``counts``; the last one again and again."""

    def __init__(self, *counts: UnitCountResponse) -> None:
        self.counts = list(counts)
        self.planned = RebalanceResponse()
        self.left = RebalanceResponse()
        self.requests: list[tuple[str, Message]] = []

    def __call__(self, *_given: object, **_options: object) -> Discovery:
        return self

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    async def call(self, method: str, request: Message) -> Any:
        self.requests.append((method, request))
        if method == "DrainBroker":
            assert isinstance(request, DrainRequest)
            return DrainResponse(broker=BrokerRecorded(broker_id=request.broker_id))
        if isinstance(request, SetCapacityRequest):
            broker = BrokerRecorded(
                broker_id=request.broker_id,
                session_id="s-1",
                capacity_units=request.capacity_units,
            )
            return SetCapacityResponse(broker=broker)
        if isinstance(request, RebalanceRequest):
            return self.left if request.plan_only else self.planned
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]


def counted(units: int, *, under_way: int = 0, evacuating: int = 0) -> UnitCountResponse:
    brokers = [
        BrokerUnits(broker_id="a", session_id="s-1", units=units),
        BrokerUnits(broker_id="b", session_id="s-2", units=100 - units),
    ]
    return UnitCountResponse(brokers=brokers, under_way=under_way, evacuating=evacuating)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evacuation_run, "LOOK_MS", 0)


def test_rates_are_given_as_people_write_them() -> None:
    assert parse_rate("100/s") == parse_rate("100") == parse_rate(" 100/s ") == 100
    assert parse_rate(f"{DRAIN_UNITS_PER_SECOND_MAX}/s") == DRAIN_UNITS_PER_SECOND_MAX
    for wrong in ("0", "-1", "fast", "1/m", "", f"{DRAIN_UNITS_PER_SECOND_MAX + 1}"):
        with pytest.raises(InvalidRequest, match="a rate of"):
            parse_rate(wrong)


async def test_a_drain_asks_once_and_says_the_rate() -> None:
    discovery = Discovery(counted(0))

    answer = await drain(discovery, "a", units_per_second=7)

    assert answer.broker.broker_id == "a"
    assert discovery.requests == [("DrainBroker", DrainRequest(broker_id="a", units_per_second=7))]


async def test_a_drain_is_followed_until_its_session_has_nothing_left() -> None:
    discovery = Discovery(counted(30), counted(10), counted(0))
    seen: list[tuple[int, int]] = []

    done = await follow_drain(
        discovery, "s-1", lambda each: seen.append((each.total, each.left)), timeout_ms=60_000
    )

    assert seen == [(30, 30), (30, 10), (30, 0)]
    assert (done.total, done.left) == (30, 0)


async def test_a_broker_that_registered_again_does_not_keep_the_drain_going() -> None:
    """Its new session has units, the one that was drained has none."""
    discovery = Discovery(counted(0))

    assert (await follow_drain(discovery, "s-1", lambda _: None, timeout_ms=60_000)).left == 0


async def test_a_rebalance_is_followed_until_nothing_is_under_way() -> None:
    discovery = Discovery(counted(30, under_way=12), counted(20, under_way=0))

    done = await follow_rebalance(discovery, lambda _: None, timeout_ms=60_000)

    assert (done.total, done.left) == (12, 0)


async def test_a_rebalance_does_not_wait_for_drains() -> None:
    """Another operator began them, and placement rules may keep a drain from ever ending."""
    discovery = Discovery(
        counted(30, under_way=17, evacuating=5), counted(20, under_way=5, evacuating=5)
    )

    done = await follow_rebalance(discovery, lambda _: None, timeout_ms=60_000)

    assert (done.total, done.left) == (12, 0)


@pytest.mark.parametrize("json_output", [True, False])
def test_a_rebalance_that_has_nothing_to_do_ends_though_a_drain_is_stuck(
    monkeypatch: pytest.MonkeyPatch, json_output: bool
) -> None:
    discovery = Discovery(counted(30, under_way=5, evacuating=5))
    discovery.planned = RebalanceResponse(under_way=5, evacuating=5, reason="all is even")
    monkeypatch.setattr("nextgen.cli.calls.discovery_client.DiscoveryClient", discovery)
    options = ["--target", "127.0.0.1:1", *(["--json"] if json_output else [])]

    result = runner.invoke(app, ["rebalance", "--apply", *options])

    assert result.exit_code == ExitCode.DONE
    assert [method for method, _ in discovery.requests] == ["Rebalance"]
    if json_output:
        assert json.loads(result.stdout)["evacuating"] == 5
    else:
        why = "0 moves, 5 units are leaving brokers that drain or are lost: all is even\n"
        assert result.stdout == why


@pytest.mark.parametrize("json_output", [True, False])
def test_a_rebalance_that_is_over_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, json_output: bool
) -> None:
    """A move that was planned may have been refused."""
    discovery = Discovery(counted(30, under_way=2), counted(20))
    before = [BrokerUnits(broker_id="a", session_id="s-1", units=9)]
    now = [BrokerUnits(broker_id="a", session_id="s-1", units=8)]
    planned = [BrokerUnits(broker_id="a", session_id="s-1", units=7)]
    discovery.planned = RebalanceResponse(count=2, under_way=2, before=before, after=planned)
    discovery.left = RebalanceResponse(count=1, before=now, after=planned, reason="one to go")
    monkeypatch.setattr("nextgen.cli.calls.discovery_client.DiscoveryClient", discovery)
    options = ["--target", "127.0.0.1:1", *(["--json"] if json_output else [])]

    result = runner.invoke(app, ["rebalance", "--apply", *options])

    assert result.exit_code == ExitCode.DONE
    if json_output:
        document = json.loads(result.stdout)
        assert document["left"] == {"count": 1, "reason": "one to go"}
        assert document["count"] == 2
    else:
        assert "1 are left: one to go" in result.stdout
        assert "│ a      │      9 │     8 │    0.0 │" in result.stdout
        assert "2 moves, 2 of them not shown" in result.stdout


async def test_a_wait_that_times_out_says_what_is_left_and_that_it_goes_on() -> None:
    discovery = Discovery(counted(30, under_way=30))

    with pytest.raises(DeadlineExceeded, match=r"30 of 30 units are left .* the drain goes on"):
        await follow_drain(discovery, "s-1", lambda _: None, timeout_ms=1)
    with pytest.raises(DeadlineExceeded, match=r"30 of 30 units are left .*--stop gives up"):
        await follow_rebalance(discovery, lambda _: None, timeout_ms=1)


async def test_a_wait_shows_for_how_long_no_unit_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter([100.0, 101.0, 103.0, 107.0, 115.0])
    monkeypatch.setattr(evacuation_run, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    discovery = Discovery(counted(30), counted(30), counted(10), counted(0))
    seen: list[float] = []

    await follow_drain(
        discovery, "s-1", lambda each: seen.append(each.idle_seconds), timeout_ms=60_000
    )

    assert seen == [0.0, 2.0, 0.0, 0.0]


def test_progress_is_no_output_of_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar is for a terminal on stderr; programs that ask for JSON get none."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    for is_shown in (True, False):
        with shown_progress("draining a", is_shown=is_shown) as show:
            show(Progress(total=10, left=4, seconds=60.0, idle_seconds=31.0))
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("draining a, none left for 31 s" in captured.err) is is_shown


@pytest.mark.parametrize("path", [["brokers", "drain"], ["rebalance"]])
def test_the_commands_explain_themselves_and_speak_json(path: list[str]) -> None:
    result = runner.invoke(app, [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})

    assert result.exit_code == 0
    for option in ("--rate", "--json", "--no-wait"):
        assert option in result.output


def test_plan_apply_and_stop_exclude_each_other() -> None:
    result = runner.invoke(app, ["rebalance", "--plan", "--apply"])

    assert result.exit_code == ExitCode.USAGE
    assert "exclude each other" in result.stderr


def test_a_capacity_is_set_and_followed_until_its_broker_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = Discovery(counted(30), counted(25), counted(20))
    monkeypatch.setattr("nextgen.cli.calls.discovery_client.DiscoveryClient", discovery)

    result = runner.invoke(app, ["brokers", "set-capacity", "a", "20", "--json", "--target", "h:1"])

    assert result.exit_code == ExitCode.DONE, result.output
    shown = json.loads(result.stdout)
    assert (shown["capacity_units"], shown["units"]) == (20, 10)
    asked = SetCapacityRequest(broker_id="a", capacity_units=20)
    assert discovery.requests[0] == ("SetBrokerCapacity", asked)
    assert len(discovery.requests) == 4


@pytest.mark.parametrize("units", ["0", "-5", "10000001"])
def test_a_capacity_that_cannot_be_is_refused_before_anybody_is_asked(units: str) -> None:
    result = runner.invoke(app, ["brokers", "set-capacity", "--target", "h:1", "--", "a", units])

    assert result.exit_code != ExitCode.DONE
    assert f"UNITS is {units}, it may be 1 to" in result.stderr
