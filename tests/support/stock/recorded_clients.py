"""Stock clients in three languages, each with a producer, a consumer and at last a reader of one
topic. Each records what it sees in the history of a run, which is judged afterwards.

    start ──▶ sends steadily, consumes ──▶ end: nothing more is sent, everything acknowledged
                                             is consumed, then the whole topic is read again
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

from nextgen.harness.history.model import Drained, Received
from nextgen.harness.history.record_file import Recorder, read_records
from tests.support.callers.foreign_client import go_program, java_program

PROGRESS_S_MAX = 180
END_S_MAX = 150
INTERVAL_MS = 10
SUBSCRIPTION = "attached"


class RecordedClient(Protocol):
    """A client at work on ``topic``."""

    topic: str

    @property
    def acked(self) -> int:
        """How many messages were acknowledged, a second ago."""

    def end(self) -> None:
        """Send no more; return when the topic has been consumed and read to its end."""

    def close(self) -> None: ...


def wait_progress(clients: Sequence[RecordedClient], messages: int) -> None:
    """Return when each client has so many more messages acknowledged."""
    goals = [each.acked + messages for each in clients]
    _until(
        lambda: all(each.acked >= goal for each, goal in zip(clients, goals, strict=True)),
        lambda: f"{[each.acked for each in clients]} of {goals} acknowledged",
        PROGRESS_S_MAX,
    )


def java_client(service_url: str, topic: str, history: Path) -> ForeignClient:
    """The stock Java client of Pulsar 5."""
    command = java_program("checks.Recorded", "5", "128m")
    return ForeignClient([*command, service_url, topic, "java", str(history)], topic)


def go_client(service_url: str, topic: str, history: Path) -> ForeignClient:
    """The stock Go client."""
    command = [go_program(), "recorded"]
    return ForeignClient([*command, service_url, topic, "go", str(history)], topic)


def started_clients(
    service_url: str, topics: Sequence[str], directory: Path, ends: ExitStack
) -> list[RecordedClient]:
    """Return a Java, a Python and a Go client at work, on a topic each; ``ends`` closes them."""
    for_java, for_python, for_go = topics
    # Not while the other two send: a build without a cache takes minutes.
    go_program()
    clients: list[RecordedClient] = []
    for begin in (
        lambda: java_client(service_url, for_java, directory / "java.jsonl"),
        lambda: PythonClient(service_url, for_python, directory),
        lambda: go_client(service_url, for_go, directory / "go.jsonl"),
    ):
        client: RecordedClient = begin()
        ends.enter_context(closing(client))
        clients.append(client)
    return clients


class _Lines:
    """A program that prints JSON lines; what it complains of is shown by the test."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        self._errors = threading.Thread(target=self._complain)
        self._errors.start()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        return map(json.loads, self.process.stdout)

    def send(self, content: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(content) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._errors.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _complain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            print(line, end="")


class ForeignClient:
    """A program that ends with its input: ``Recorded.java``, ``recorded.go``."""

    def __init__(self, command: Sequence[str], topic: str) -> None:
        self.topic = topic
        self.acked = 0
        self._ended = -1
        self._lines = _Lines(command)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def end(self) -> None:
        """See ``RecordedClient.end``."""
        assert self._lines.process.stdin is not None
        self._lines.process.stdin.close()
        self._reading.join(END_S_MAX)
        assert self._ended >= 0, f"{self.topic}: {self.acked} acknowledged, and no end"

    def close(self) -> None:
        """End the program, whatever it does."""
        self._lines.process.kill()
        self._reading.join()
        self._lines.close()

    def _read(self) -> None:
        for content in self._lines:
            self.acked = content.get("acked", self.acked)
            self._ended = content.get("ended", self._ended)
            if "complaint" in content:
                print(content["complaint"])


class PythonClient:
    """The stock Python client, in the processes of a chaos run."""

    def __init__(self, service_url: str, topic: str, directory: Path) -> None:
        self.topic = topic
        self.acked = 0
        self._job = {"service_url": service_url, "topics": [topic], "log_path": os.devnull}
        self._directory = directory
        self._jobs: list[_Job] = []
        self._received = self._begin(
            "receive", kind="chaos_receive", consumer="python-attached", is_group=True
        )
        self._received.until_event("subscribed")
        self._published = self._begin("publish", kind="chaos_publish", interval_ms=INTERVAL_MS)
        self._published.on_tick = self._count
        self._published.until_event("producing")

    def end(self) -> None:
        """See ``RecordedClient.end``."""
        published = self._published.stop()
        acked = set(published["acked_by_topic"][self.topic])
        _until(
            lambda: acked <= self._consumed(),
            lambda: f"{len(acked - self._consumed())} of {len(acked)} were not consumed",
            PROGRESS_S_MAX,
        )
        self._received.stop()
        with Recorder(self._directory / "python-drained.jsonl") as recorder:
            recorder.write(Drained("", self.topic, SUBSCRIPTION))
        drain = self._begin(
            "drain",
            kind="chaos_drain",
            consumer="python-reader",
            subscription="drain",
            acked_by_topic=published["acked_by_topic"],
        )
        assert drain.result()["missing"] == 0

    def close(self) -> None:
        """End its processes, whatever they do."""
        for each in self._jobs:
            each.close()

    def _begin(self, name: str, **job: Any) -> _Job:
        history = str(self._directory / f"python-{name}.jsonl")
        begun = _Job({"subscription": SUBSCRIPTION, **self._job, "history": history, **job})
        self._jobs.append(begun)
        return begun

    def _count(self, tick: dict[str, Any]) -> None:
        self.acked = tick["published"]

    def _consumed(self) -> set[int]:
        path = self._directory / "python-receive.jsonl"
        return {each.sequence for each in read_records(path) if isinstance(each, Received)}


class _Job:
    """One job of ``nextgen.harness.load.worker``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.on_tick: Callable[[dict[str, Any]], None] = lambda _tick: None
        self._events: set[str] = set()
        self._result: dict[str, Any] | None = None
        self._lines = _Lines([sys.executable, "-m", "nextgen.harness.load.worker"])
        self._lines.send(job)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def until_event(self, name: str) -> None:
        """Return when the job has printed this event."""
        _until(lambda: name in self._events, lambda: f"not {name}", PROGRESS_S_MAX)

    def stop(self) -> dict[str, Any]:
        """Request the end; return the result."""
        self._lines.send({"stop": True})
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return the result once it is there."""
        self._reading.join(END_S_MAX)
        assert self._result is not None, "the job has told no result"
        return self._result

    def close(self) -> None:
        self._lines.process.kill()
        self._reading.join()
        self._lines.close()

    def _read(self) -> None:
        for message in self._lines:
            if "tick" in message:
                self.on_tick(message["tick"])
            elif "event" in message:
                self._events.add(message["event"])
            elif "failed" in message:
                print(message["failed"])
            elif "result" in message:
                self._result = message["result"]


def _until(holds: Callable[[], bool], what: Callable[[], str], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
