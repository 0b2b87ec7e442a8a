"""``nextgen events`` against replicas that a test decides about: what is shown, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from nextgen.cli.data.event_commands import LINE_CHARACTERS_MAX, _names_and_keys, _Subject
from nextgen.client.log import reader as event_log
from nextgen.kernel.limits.stream import POSITION_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1.events_pb2 import Event, TopicCreated, TopicRenamed
from protos.nextgen.v1.shard_service_pb2 import EventBatch
from tests.support.logs.fake_log_replicas import FakeLogReplica, served


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


def test_a_line_is_a_summary_and_json_has_everything(cluster: Served) -> None:
    # Given: an event with a thousand ranges of slots, as the first of a shard's log.
    cluster.leader.damage = cluster.follower.damage = with_slots

    # When: it is shown as a line, and as JSON.
    line = cluster.events("1", "--limit", "1").stdout
    document = cluster.events("1", "--limit", "1", "--json").stdout

    # Then: the line names the first slots and their number; the document has all of them.
    assert "ranges=[{first:10,last:11},{first:20,last:21}," in line
    assert "… 1,000 in all]" in line
    assert len(line) < LINE_CHARACTERS_MAX
    assert len(json.loads(document)["slots_adopted"]["ranges"]) == 1_000


def test_load_reports_are_counted_unless_they_are_wanted(cluster: Served) -> None:
    cluster.leader.damage = cluster.follower.damage = with_loads

    shown = cluster.events("1")
    wanted = cluster.events("1", "--json")

    assert shown.stdout.count("\n") == 8
    assert "2 load reports not shown: see --type broker_load_reported or seg" in shown.stderr
    assert wanted.stdout.count("\n") == 10
    assert "not shown" not in wanted.stderr


def with_slots(batch: EventBatch) -> None:
    for event in batch.events:
        if event.position == 1:
            for number in range(1, 1_001):
                event.slots_adopted.ranges.add(first=10 * number, last=10 * number + 1)


def with_loads(batch: EventBatch) -> None:
    for event in batch.events:
        if event.position == 4:
            event.broker_load_reported.broker_id = "broker-1"
        if event.position == 5:
            event.segment_loads_recorded.topic = "topic://acme/orders/paid"


def test_a_name_is_read_from_its_shard_with_its_events_only(
    cluster: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_as(monkeypatch, (1, "acme/orders/t-1"))

    # Position 10 is of t-10, which begins with the name and is another topic.
    assert cluster.positions("acme/orders/t-1") == [1]


def test_a_word_that_is_no_tenant_is_looked_for_as_a_topic(
    cluster: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_as(monkeypatch, (1, "t-1"), (1, "acme/orders/t-1"))

    assert cluster.positions("t-1") == [1]
    assert "no event" not in cluster.events("t-1").stdout


def test_a_name_without_events_is_reported_as_having_none(
    cluster: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_as(monkeypatch, (1, "t-77"))

    assert cluster.events("t-77").stdout == "no event of shard 1 from 1 to 10 is about t-77\n"


def reads_as(monkeypatch: pytest.MonkeyPatch, *shards_and_names: tuple[int, str]) -> None:
    async def homes(_name: str, _nodes: object) -> AsyncGenerator[_Subject, None]:
        for each in shards_and_names:
            yield _Subject(*each)

    monkeypatch.setattr("nextgen.cli.data.event_commands._subjects", homes)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("acme", [("acme", "acme"), ("persistent://public/default/acme", "public/default/acme")]),
        ("acme/orders", [("acme/orders", "acme/orders")]),
        ("acme/orders/paid", [("persistent://acme/orders/paid", "acme/orders/paid")]),
        ("topic://a/b/c", [("topic://a/b/c", "a/b/c")]),
    ],
)
def test_a_name_is_a_tenant_a_namespace_or_a_topic(
    given: str, found: list[tuple[str, str]]
) -> None:
    assert _names_and_keys(given) == found


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


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (("",), ""),
        (("acme",), "acme"),
        (("persistent://acme/a/x", "persistent://acme/b/y"), "persistent://acme/"),
        (("persistent://acme/a/x", "persistent://acme/a/x-1"), "persistent://acme/a/x"),
        (("b", "a"), ""),
    ],
)
def test_a_renamed_topic_is_read_by_what_its_names_begin_with(names, prefix) -> None:
    assert _Subject(1, names[0], "t-1", names[1:]).prefix == prefix


def test_events_by_a_former_name_are_shown_if_they_are_the_topics_own() -> None:
    subject = _Subject(1, "persistent://a/b/new", "t-1", ("persistent://a/b/old",))

    def created(name: str, topic_id: str) -> Event:
        return Event(topic_created=TopicCreated(name=name, topic_id=topic_id))

    assert subject.is_of(created("persistent://a/b/old", "t-1"))
    assert not subject.is_of(created("persistent://a/b/old", "t-2")), "got the name later"
    assert subject.is_of(created("persistent://a/b/new", "t-0")), "had the name before"
    assert not subject.is_of(created("persistent://a/b/older", "t-1"))
    renamed = TopicRenamed(name="persistent://a/b/old", new_name="persistent://a/b/new")
    assert subject.is_of(Event(topic_renamed=renamed))
