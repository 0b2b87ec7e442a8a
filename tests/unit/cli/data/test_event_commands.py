"""``nextgen events`` against replicas that a test decides about: what is shown, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from nextgen.client.log import reader as event_log
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.fake_log_replicas import FakeLogReplica, served


class Served:
    """A leader and a follower with ten events, served from a thread of their own."""

    def __init__(self) -> None:
        self.leader = FakeLogReplica("node-1", 10)
        self.follower = FakeLogReplica("node-2", 10)
        self.leader.leads = True
        self.endpoint = ""

    def events(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["events", *arguments, "--target", self.endpoint])

    def positions(self, *arguments: str) -> list[int]:
        result = self.events(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return [json.loads(line)["position"] for line in result.stdout.splitlines()]

    def refused(self, *arguments: str, code: ExitCode = ExitCode.REFUSED) -> str:
        result = self.events(*arguments)
        assert result.exit_code == code, result.output
        # The servers are in this process too, and may log that a client went away.
        (line,) = [each for each in result.stderr.splitlines() if each.startswith("nextgen: ")]
        return line


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(event_log, "PAUSE_MS", 1)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def enter() -> tuple[Served, contextlib.AsyncExitStack]:
        made, stack = Served(), contextlib.AsyncExitStack()
        made.endpoint = await stack.enter_async_context(served([made.leader, made.follower]))
        return made, stack

    made, stack = asyncio.run_coroutine_threadsafe(enter(), loop).result(30)
    yield made
    asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_events_are_shown_from_a_position_and_no_more_than_wanted(cluster: Served) -> None:
    assert cluster.positions("1") == list(range(1, 11))
    assert cluster.positions("1", "--from", "0", "--limit", "2") == [1, 2]
    assert cluster.positions("1", "--from", "8") == [8, 9, 10]
    assert "1:9 " in cluster.events("1", "--from", "9").stdout


def test_a_position_as_it_was_printed_can_be_given_back(cluster: Served) -> None:
    assert cluster.positions("1", "--from", "1:9") == [9, 10]


def test_a_position_of_another_shard_is_refused_by_name(cluster: Served) -> None:
    said = cluster.refused("1", "--from", "2:9", code=ExitCode.USAGE)

    assert "2:9 is of shard 2" in said
    assert "shard 1 was asked for" in said


@pytest.mark.parametrize("text", ["x", "-1", "1:", ":1", "1:2:3", "1.5", "", str(POSITION_MAX + 1)])
def test_what_is_no_position_is_refused(cluster: Served, text: str) -> None:
    assert "is no position" in cluster.refused("1", f"--from={text}", code=ExitCode.USAGE)


def test_the_highest_position_is_one_of_the_future(cluster: Served) -> None:
    said = cluster.refused("1", "--from", str(POSITION_MAX))

    assert "in the future" in said
    assert "event is 10" in said


def test_behind_the_cut_the_oldest_and_the_snapshot_are_named_and_what_to_do(
    cluster: Served,
) -> None:
    cluster.leader.oldest, cluster.follower.oldest = 8, 6

    said = cluster.refused("1", "--from", "2")

    assert "the oldest is 6" in said
    assert "--from 1:6" in said
    assert "snapshot of position 10" in said


def test_a_log_that_is_not_dense_is_a_failed_check(cluster: Served) -> None:
    cluster.leader.damage = lambda batch: batch.events.pop(1)

    said = cluster.refused("1", code=ExitCode.CHECK_FAILED)

    assert "position 2 was expected" in said


def test_filters_narrow_what_is_shown(cluster: Served) -> None:
    assert cluster.positions("1", "--prefix", "acme/orders/t-1") == [1, 10]
    assert cluster.positions("1", "--type", "topic_created", "--limit", "1") == [1]


def test_a_filter_that_matches_nothing_prints_nothing_and_ends_well(cluster: Served) -> None:
    assert cluster.positions("1", "--type", "tenant_created") == []
    assert cluster.positions("1", "--prefix", "nobody/") == []
    assert cluster.events("1", "--prefix", "nobody/").exit_code == 0


def test_on_a_terminal_a_filter_that_matches_nothing_says_what_was_looked_at(
    cluster: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nextgen.cli.data.event_commands.is_terminal", lambda: True)

    assert (
        "none of the 10 events of shard 1 from 1 to 10"
        in cluster.events("1", "--prefix", "nobody/").stdout
    )
    assert "no event at 11 or behind it yet" in cluster.events("1", "--from", "11").stdout
    assert cluster.events("1", "--prefix", "nobody/", "--json").stdout == ""


def test_an_unknown_type_or_shard_is_refused_by_name(cluster: Served) -> None:
    assert "no shard 9" in cluster.refused("9")


def test_the_named_readers_of_each_replica_are_shown(cluster: Served) -> None:
    cluster.leader.pins["exporter"] = (4, 60_000)
    cluster.follower.oldest = 3

    result = cluster.events("1", "--readers", "--json")

    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["node"], first["oldest_position"]) == ("node-1", 1)
    assert first["readers"] == [
        {"reader_id": "exporter", "position": 4, "expires_in_ms": 60_000, "is_broken": False}
    ]
    assert (second["node"], second["oldest_position"], second["readers"]) == ("node-2", 3, [])
    table = cluster.events("1", "--readers").stdout
    assert "exporter" in table
    assert "no named reader" in table
