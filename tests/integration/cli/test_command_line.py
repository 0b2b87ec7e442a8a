"""The command line against a small cluster of real processes that it started itself."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from nextgen.cli.local.cluster_state import RunningCluster, read_state
from nextgen.cli.local.plan import MINIMAL, load_plan, make_plan_on_free_ports
from nextgen.runtime.lifecycle.exit_code import ExitCode
from tests.support.processes.fork_server import run_warm

pytestmark = pytest.mark.integration

COMMAND_TIMEOUT_S = 110


class CommandLine:
    """Runs ``nextgen`` as a person would, with one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def run(
        self, *arguments: str, standard_input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run_warm(
            "nextgen",
            arguments,
            environment={**os.environ, "NEXTGEN_DATA_DIR": str(self.data_dir)},
            standard_input=standard_input,
            timeout_s=COMMAND_TIMEOUT_S,
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        """Run a command that must succeed and return the last line it printed."""
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        last = result.stdout.strip().splitlines()[-1]
        return dict(json.loads(last))

    def json_when(self, is_so: Callable[[dict[str, Any]], bool], *arguments: str) -> dict[str, Any]:
        """Run a command until it prints what is asked for.

        A process that stood still is shown as one that does not answer, or says nothing itself.
        """
        until = time.monotonic() + COMMAND_TIMEOUT_S
        while True:
            result = self.run(*arguments, "--json")
            assert result.returncode in (ExitCode.DONE, ExitCode.NO_ANSWER), result.stderr
            if result.returncode == ExitCode.DONE:
                found = dict(json.loads(result.stdout.strip().splitlines()[-1]))
                if is_so(found):
                    return found
            assert time.monotonic() < until, result

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command that must succeed and return the lines it printed."""
        result = self.run(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def refused(self, *arguments: str) -> str:
        """Run a command that must be refused and return its one sentence."""
        result = self.run(*arguments)
        assert result.returncode == ExitCode.REFUSED, result
        assert len(result.stderr.strip().splitlines()) == 1
        return result.stderr


@pytest.fixture(scope="module")
def nextgen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command_line = CommandLine(tmp_path_factory.mktemp("cluster"))
    port_base = make_plan_on_free_ports(MINIMAL).nodes[0].grpc_port
    ready = command_line.json("up", "--minimal", "--detach", "--port-base", str(port_base))
    assert ready["ready"] is True
    assert ready["service_url"] == f"pulsar://127.0.0.1:{port_base + 3}"
    running = running_in(command_line)
    try:
        command_line.json("tenants", "create", "acme", "--property", "owner=sales")
        command_line.json("namespaces", "create", "acme/orders")
        yield command_line
    finally:
        command_line.run("down")
        for process_id in (running.supervisor_pid, *running.node_pids.values()):
            assert not psutil.pid_exists(process_id)


def running_in(command_line: CommandLine) -> RunningCluster:
    running = read_state(command_line.data_dir)
    assert running is not None
    return running


def test_what_is_created_can_be_read_listed_and_deleted(nextgen: CommandLine):
    created = nextgen.json("topics", "create", "acme/orders/paid", "-p", "retention=1h")
    shown = nextgen.json("topics", "get", "acme/orders/paid")
    listed = nextgen.json("topics", "list", "acme/orders")
    nextgen.json("topics", "delete", "acme/orders/paid")

    assert shown["topic_id"] == created["topics"][0]["topic_id"]
    assert shown["properties"] == {"retention": "1h"}
    assert shown["name"] in [topic["name"] for topic in listed["topics"]]
    assert "there is no topic" in nextgen.refused("topics", "get", "acme/orders/paid")


def test_tenants_and_namespaces_are_shown_with_their_properties(nextgen: CommandLine):
    assert nextgen.json("tenants", "get", "acme")["properties"] == {"owner": "sales"}
    assert nextgen.json("namespaces", "get", "acme/orders")["name"] == "acme/orders"
    assert [one["name"] for one in nextgen.json("tenants", "list")["tenants"]] == ["acme"]


def test_a_parent_with_children_is_not_deleted(nextgen: CommandLine):
    assert "not empty" in nextgen.refused("tenants", "delete", "acme")


def test_a_bad_name_gets_its_reason(nextgen: CommandLine):
    assert "two parts" in nextgen.refused("topics", "create", "acme/orders")


def test_what_the_commands_cannot_do_they_say(nextgen: CommandLine):
    assert "last shard-node" in nextgen.refused("nodes", "remove", "shard-node-1")
    assert "cluster managers" in nextgen.refused("nodes", "remove", "cluster-manager-1")
    assert "no node nobody" in nextgen.refused("nodes", "remove", "nobody")
    assert "no shard 9" in nextgen.refused("shards", "replicas", "list", "9")
    assert "no shard 9" in nextgen.refused("shards", "replicas", "add", "9", "shard-node-1")
    assert "already" in nextgen.refused("shards", "replicas", "add", "1", "shard-node-1")
    for arguments in (
        ("nodes", "add", "cluster-manager"),
        ("shards", "replicas", "add", "first", "shard-node-1"),
    ):
        assert nextgen.run(*arguments).returncode == ExitCode.USAGE


def test_a_list_can_be_cut_short(nextgen: CommandLine):
    names = [f"acme/orders/many-{number}" for number in range(5)]
    nextgen.json("topics", "create", *names)

    page = nextgen.json("topics", "list", "acme/orders", "--limit", "3")

    assert (len(page["topics"]), page["more"]) == (3, True)


def test_a_first_lookup_assigns_and_the_event_log_tells_of_it(nextgen: CommandLine):
    nextgen.json("topics", "create", "acme/orders/looked-up")

    answer = nextgen.json("lookup", "acme/orders/looked-up")["answers"][0]
    again = nextgen.json("lookup", "persistent://acme/orders/looked-up")["answers"][0]
    result = nextgen.run("events", "1", "--type", "topic_assigned", "--json")
    events = [json.loads(line) for line in result.stdout.splitlines()]

    assert (answer["broker_id"], answer["epoch"]) == ("broker-1", 1)
    assert again["epoch"] == 1
    named = [event["topic_assigned"]["name"] for event in events]
    assert named.count(answer["topic"]) == 1


def test_a_lookup_of_nothing_is_refused_with_a_reason(nextgen: CommandLine):
    assert "NOT_FOUND" in nextgen.refused("lookup", "acme/orders/never-created")


def test_a_partitioned_topic_is_looked_up_by_partition(nextgen: CommandLine):
    nextgen.json("topics", "create", "acme/orders/wide", "--partitions", "2")

    sentence = nextgen.refused("lookup", "acme/orders/wide")
    answer = nextgen.json("lookup", "acme/orders/wide-partition-1")["answers"][0]

    assert "PARTITIONED" in sentence
    assert answer["broker_id"] == "broker-1"


def test_positions_that_there_are_not_are_refused_by_name(nextgen: CommandLine):
    other = nextgen.run("events", "1", "--from", "2:1")
    assert other.returncode == ExitCode.USAGE
    assert "position 2:1 is of shard 2" in other.stderr

    assert "in the future" in nextgen.refused("events", "1", "--from", "1:999999999")
    nothing = nextgen.run("events", "1", "--prefix", "nobody/", "--json")
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_events_begin_where_they_are_asked_to(nextgen: CommandLine):
    result = nextgen.run("events", "1", "--from", "2", "--limit", "2", "--json")

    assert [json.loads(line)["position"] for line in result.stdout.splitlines()] == [2, 3]


def test_a_shard_that_does_not_exist_is_refused_by_name(nextgen: CommandLine):
    assert "there is no shard 99" in nextgen.refused("events", "99")


def test_status_shows_leaders_positions_and_sessions(nextgen: CommandLine):
    status = nextgen.json_when(
        lambda found: (
            all("error" not in one for one in found["managers"] + found["brokers"])
            and [one.get("role") for one in found["managers"]] == ["leader"]
            and len(found["sessions"]) == 1
        ),
        "status",
    )

    assert [shard["leader"] for shard in status["shards"]] == ["shard-node-1"]
    assert status["shards"][0]["commit_position"] > 3
    assert [broker["is_live"] for broker in status["brokers"]] == [True]
    assert status["brokers"][0]["pulsar_url"].startswith("pulsar://127.0.0.1:")
    assert status["sessions"][0]["session_id"] == status["brokers"][0]["session_id"]


def test_what_is_produced_can_be_read_and_consumed(nextgen: CommandLine):
    topic = "persistent://acme/orders/messages"
    nextgen.json("topics", "create", topic)

    sent = nextgen.lines("produce", topic, "one", "two", "--key", "k", "--count", "2")
    typed = nextgen.run("produce", topic, standard_input="three\nfour\n")
    read = nextgen.lines("read", topic)
    first = nextgen.lines("read", topic, "--count", "1")
    consumed = nextgen.lines("consume", topic, "-s", "mine", "--earliest", "--count", "5")
    rest = nextgen.lines("consume", topic, "-s", "mine", "--type", "shared", "--quiet-s", "6")

    assert [one["number"] for one in sent] == [0, 1, 2, 3]
    assert typed.stdout.startswith(f"2 acknowledged by {topic}")
    said = [("one", "k"), ("two", "k"), ("one", "k"), ("two", "k"), ("three", ""), ("four", "")]
    assert [(one["data"], one["key"]) for one in read] == said
    assert [one["message_id"] for one in read[:4]] == [one["message_id"] for one in sent]
    assert first == read[:1]
    assert [(one["data"], one["key"]) for one in consumed + rest] == said


def test_a_reader_of_a_partitioned_topic_shows_every_partition(nextgen: CommandLine):
    nextgen.json("topics", "create", "acme/orders/spread", "--partitions", "3")
    for number in range(3):
        partition = f"acme/orders/spread-partition-{number}"
        nextgen.lines("produce", f"persistent://{partition}", f"at {number}")

    read = nextgen.lines("read", "persistent://acme/orders/spread")

    assert sorted(one["data"] for one in read) == ["at 0", "at 1", "at 2"]


def test_topics_stats_tell_what_the_broker_knows(nextgen: CommandLine):
    topic = "persistent://acme/orders/counted"
    nextgen.json("topics", "create", topic)
    nextgen.json("topics", "create", "acme/orders/counted-wide", "--partitions", "2")
    idle = nextgen.json("topics", "stats", topic)["topics"]
    nextgen.lines("produce", topic, "a", "b", "c")
    nextgen.lines("consume", topic, "-s", "slow", "--earliest", "--count", "1")

    (told, *wide) = nextgen.json("topics", "stats", topic, "acme/orders/counted-wide")["topics"]
    shown = nextgen.run("topics", "stats", topic)

    assert [(one["topic"], one["is_open"]) for one in idle] == [(topic, False)]
    assert (told["broker_id"], told["messages_in"], told["is_fenced"]) == ("broker-1", 3, False)
    assert [(one["name"], one["consumers"]) for one in told["subscriptions"]] == [("slow", 0)]
    # Three messages are an entry or more, as they came together or one by one.
    assert told["subscriptions"][0]["backlog_entries"] in (1, 2)
    assert [one["topic"][-11:] for one in wide] == ["partition-0", "partition-1"]
    cells = [line.split("│") for line in shown.stdout.splitlines()]
    (row,) = [[cell.strip() for cell in line] for line in cells if "broker-1" in "".join(line)]
    assert row[3:5] + row[8:10] == ["open", str(told["epoch"]), "3", str(told["messages_out"])]
    assert "slow" in shown.stdout
    assert "does not exist" in nextgen.refused("topics", "stats", "acme/orders/never-created")


def test_a_topic_that_may_not_be_created_is_refused_by_name(nextgen: CommandLine):
    nextgen.json("namespaces", "create", "acme/strict", "-p", "allowAutoTopicCreation=false")

    for topic in ("acme/strict/absent", "acme/no-namespace/absent"):
        name = f"persistent://{topic}"
        assert f"there is no topic {name}" in nextgen.refused("produce", name, "hello")
        assert f"there is no topic {name}" in nextgen.refused("consume", name, "-s", "mine")
        assert f"there is no topic {name}" in nextgen.refused("read", name)


def test_a_consumer_that_got_too_few_messages_says_how_many(nextgen: CommandLine):
    topic = "persistent://acme/orders/few"
    nextgen.json("topics", "create", topic)
    nextgen.lines("produce", topic, "only")

    result = nextgen.run(
        *("consume", topic, "-s", "mine", "--earliest", "--count", "2", "--quiet-s", "6")
    )

    assert result.returncode == ExitCode.NO_ANSWER
    assert "only" in result.stdout
    assert result.stderr == "nextgen: 1 of 2 messages came, then none for 6 s\n"


def test_metadata_that_was_exported_is_imported_and_repeating_it_changes_nothing(
    nextgen: CommandLine, tmp_path: Path
):
    file = tmp_path / "metadata.jsonl"
    nextgen.json("tenants", "create", "moved", "--property", "team=a")
    nextgen.json("namespaces", "create", "moved/there")
    nextgen.json("policies", "set", "moved/there", "message_ttl_ms=60000")
    nextgen.json("topics", "create", "moved/there/parts", "--partitions", "3")
    counts = nextgen.json("export", "metadata", str(file))
    # The same under another name: one process serves as both clusters.
    lines = [line for line in file.read_text().splitlines() if "moved" in line]
    end = {"end": {"tenants": 1, "namespaces": 1, "topics": 1}}
    versions = [{"type": "STRING", "schema": ""}]
    lines[-1] = json.dumps(json.loads(lines[-1]) | {"schemas": versions})
    copy = [file.read_text().splitlines()[0], *lines, json.dumps(end), ""]
    file.write_text("\n".join(copy).replace("moved", "moved2"))

    first, second = (nextgen.json("import", "metadata", str(file)) for _ in range(2))

    assert counts["topics"] >= 1
    created = {"read": 1, "created": 1, "completed": 0, "same": 0, "different": 0, "refused": 0}
    same = {**created, "created": 0, "same": 1}
    for level in ("tenants", "namespaces", "topics"):
        assert (first[level], second[level]) == (created, same)
    assert first["schemas"] == {"read": 1, "added": 1, "same": 0, "refused": 0}
    assert second["schemas"] == {"read": 1, "added": 0, "same": 1, "refused": 0}
    policies = nextgen.json("policies", "get", "moved2/there")
    assert policies["policies"]["message_ttl_ms"] == 60_000
    http = load_plan(nextgen.data_dir).nodes[0].http
    rest = nextgen.json("import", "pulsar", f"http://{http}")
    assert rest["topics"]["read"] == rest["topics"]["same"] > 1
    assert rest["refusals"]["count"] == 0
    assert rest["schemas"]["read"] == rest["schemas"]["same"] == 1


def test_an_adoption_proves_its_role_to_a_pulsar_that_asks_for_a_token(
    nextgen: CommandLine, tmp_path: Path
):
    file = tmp_path / "pulsar.token"
    with pulsar_with_a_token("right") as url:
        plan = ("adopt", "plan", "acme/orders", "--pulsar-admin", url)
        refused = nextgen.run(*plan)
        file.write_text("wrong")
        wrong = nextgen.run(*plan, "--pulsar-admin-token-file", str(file))
        file.write_text("right\n")
        let_in = nextgen.run(*plan, "--pulsar-admin-token-file", str(file), "--json")

    assert refused.returncode == wrong.returncode == ExitCode.CANNOT_RUN
    assert "Pulsar asks for a token" in refused.stderr
    assert "the token is not accepted" in wrong.stderr
    assert "wrong" not in wrong.stdout + wrong.stderr
    # Its answers are empty: there is no such namespace.
    assert let_in.returncode == ExitCode.REFUSED, let_in.stderr
    assert json.loads(let_in.stdout)["namespace"] == "acme/orders"


@contextmanager
def pulsar_with_a_token(token: str) -> Iterator[str]:
    """Yield the URL of an Admin REST without namespaces and brokers, for those who have a token."""

    class Admin(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            status, body = 200, b"[]"
            if given != f"Bearer {token}":
                status, body = 401, f"nobody knows {given}".encode()
            elif "/namespaces/" in self.path:
                status, body = 404, b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_second_cluster_in_the_same_directory_is_refused(nextgen: CommandLine):
    result = nextgen.run("up", "--minimal")

    assert result.returncode == ExitCode.CANNOT_RUN
    assert "nextgen down" in result.stderr


def target_of(nextgen: CommandLine) -> str:
    plan = load_plan(nextgen.data_dir)
    assert plan is not None
    return plan.of_kind("discovery")[0].grpc


def test_perf_create_agrees_with_the_event_logs(nextgen: CommandLine):
    report = nextgen.json(
        "perf", "create", "--topics", "1000", "--batch", "200", "--serial", "5",
        "--target", target_of(nextgen),
    )  # fmt: skip

    assert report["errors"] == 0
    assert report["rate"] > 0
    assert 0 < report["serial_p50"] <= report["serial_p99"]


def test_perf_lookup_agrees_with_discovery_and_no_answer_is_wrong(nextgen: CommandLine):
    report = nextgen.json(
        "perf", "lookup", "--topics", "1000", "--seconds", "1", "--target", target_of(nextgen)
    )

    assert (report["errors"], report["wrong"]) == (0, 0)
    assert report["checked"] > 0


def pulsar_of(nextgen: CommandLine) -> str:
    plan = load_plan(nextgen.data_dir)
    assert plan is not None
    return plan.of_kind("discovery")[0].pulsar


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--partition-metadata", "--workers", "2"],
        ["--absent-percent", "50"],
        ["--absent-percent", "50", "--absent-new", "--partition-metadata"],
    ],
)
def test_perf_pulsar_lookup_agrees_with_discovery_and_no_answer_is_wrong(
    nextgen: CommandLine, options: list[str]
):
    report = nextgen.json(
        "perf", "pulsar-lookup", "--topics", "1000", "--seconds", "1", "--connections", "2",
        "--in-flight", "16", "--target", target_of(nextgen), "--pulsar", pulsar_of(nextgen),
        *options,
    )  # fmt: skip

    assert (report["errors"], report["wrong"]) == (0, 0)
    assert report["rate"] > 0
    assert report["checked"] > 0 or "--partition-metadata" in options


def test_perf_watch_finds_that_each_watcher_gets_its_topics_once(nextgen: CommandLine):
    report = nextgen.json(
        "perf", "watch", "--watchers", "20", "--processes", "1", "--streams", "2",
        "--seconds", "1", "--rounds", "1", "--in-flight", "8",
        "--target", target_of(nextgen), "--pulsar", pulsar_of(nextgen),
    )  # fmt: skip

    assert (report["wrong"], report["first_wrong"]) == (0, "")
    assert report["delivered"] > 0
    assert 0 < report["update_p50"] <= report["update_p99"]
    assert "kill_update_max_ms" not in report, "a leader of the target was killed"


def test_perf_produce_agrees_with_the_broker_and_reads_everything_again(nextgen: CommandLine):
    report = nextgen.json(
        "perf", "produce", "--messages", "2000", "--serial", "20",
        "--target", target_of(nextgen), "--pulsar", pulsar_of(nextgen),
    )  # fmt: skip

    assert (report["errors"], report["wrong"]) == (0, 0)
    assert report["messages_counted_by_broker"] == report["read_again"]["received"] == 2_020
    assert 0 < report["serial_p50"] <= report["serial_p99"]


def test_perf_consume_reads_the_backlog_in_order_and_once(nextgen: CommandLine):
    report = nextgen.json(
        "perf", "consume", "--messages", "2000",
        "--target", target_of(nextgen), "--pulsar", pulsar_of(nextgen),
    )  # fmt: skip

    assert (report["errors"], report["wrong"], report["read"]["received"]) == (0, 0, 2_000)


def test_perf_of_a_named_cluster_needs_its_pulsar_port(nextgen: CommandLine):
    result = nextgen.run("perf", "produce", "--target", target_of(nextgen))

    assert result.returncode == ExitCode.CANNOT_RUN
    assert "--pulsar" in result.stderr


@pytest.mark.slow
def test_perf_assign_makes_one_assignment_of_many_first_lookups(nextgen: CommandLine):
    # More messages at once than gRPC lets wait by itself, and fewer names than one shard on a busy
    # machine assigns within the time after which discovery refuses them.
    report = nextgen.json(
        "perf", "assign", "--serial", "20", "--bursts", "12", "--burst", "2",
        "--at-once", "1500", "--concurrent", "100", "--target", target_of(nextgen),
    )  # fmt: skip

    assert report["errors"] == 0, report["first_error"]
    assert report["events_counted_by_shards"] == 20 + 12 * 2 + 1_500
    assert report["one_topic"]["assignments"] == 1
