"""Programs in other languages that use a client of their own against a cluster.

Each is fetched and built by its language's own tool into a folder that git ignores, once for
each state of its sources. It prints a JSON line for each check, and one with "ask" where the
cluster is to be disturbed; it goes on when it gets a line back. A line with "measured" is shown
(`pytest -rP`) and not judged: how long something takes depends on the machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from protos.nextgen.v1 import topic_admin_pb2 as pb
from tests.support.callers.stock_client import PulsarSystem

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "clients"
ATTEMPTS = 3
"""At fetching: a registry may be slow or busy for a moment."""

FETCH_TIMEOUT_S = 300
RUN_S_MAX = 600
"""For all checks of a program. Only one that is stuck needs it."""

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of a JVM that lives for a minute: one quick compiler, and no threads for garbage. Not for
one whose speed is measured."""

UNVERIFIED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
"""What javac has made of classes is not verified again in each process that loads them."""

SHORT_LIVED = (*QUICK_JVM, *UNVERIFIED)

QUICK_GO = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-w")
"""Flags of ``go build`` for a program that runs for a minute: the compiler optimises nothing, and
neither it nor the linker writes debug information."""

NEW_OWNER_S = 60
JAVA_CLIENTS = {
    "4": ("pulsar-client", "4.2.0"),
    "5": ("pulsar-client-original", "5.0.0-M1"),
}
"""The stock Java clients, by their line: artifact and version."""

_JAVA = ("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
REQUIRED = "CLIENTS_REQUIRED"
"""Environment variable: where it is set, a client that cannot be fetched and built with the tools
that are there fails instead of being skipped. A tool that is missing always skips, by its name."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one check: no error, or a sentence."""

    check: str
    error: str


def unavailable(reason: str) -> None:
    """Skip the test, or fail it where clients are required."""
    if os.environ.get(REQUIRED):
        pytest.fail(reason)
    pytest.skip(reason)


def require_tools(*names: str) -> None:
    """Skip by name unless these commands are on the path."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found")


def maven_environment() -> dict[str, str]:
    """Return an environment in which Maven itself has ``SHORT_LIVED`` flags."""
    given = os.environ.get("MAVEN_OPTS", "")
    return {**os.environ, "MAVEN_OPTS": " ".join((given, *SHORT_LIVED))}


def built(
    name: str,
    sources: Sequence[Path],
    command: Callable[[Path], list[str]],
    *,
    turn: str = "",
) -> Path:
    """Return the folder that ``command(folder)`` filled, from these sources; made once.

    Several files of tests may need it at the same time, each in a process of its own. What has the
    same ``turn`` is not built at the same time, by default what has the same name.
    """
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    folder = BUILD / f"{name}-{digest.hexdigest()[:12]}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{turn or name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _built(name, folder, command)


def _built(name: str, folder: Path, command: Callable[[Path], list[str]]) -> Path:
    done = folder / ".done"
    if done.exists():
        return folder
    reason = ""
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            result = subprocess.run(
                command(folder),
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
                cwd=folder,
                env=maven_environment(),
            )
        except subprocess.TimeoutExpired:
            reason = f"took longer than {FETCH_TIMEOUT_S} s"
            continue
        if result.returncode == 0:
            done.touch()
            return folder
        reason = (result.stdout + result.stderr).strip()[-1500:]
    unavailable(f"{name} could not be built: {reason}")
    raise AssertionError("not reached")


def java_program(main: str, client: str, heap: str) -> list[str]:
    """Return the command that runs a class of ``tests/e2e/java`` with one of ``JAVA_CLIENTS``,
    built if it is not yet."""
    require_tools("java", "mvn")
    artifact, version = JAVA_CLIENTS[client]
    project = ROOT / "tests" / "e2e" / "java"
    folder = built(
        f"java-{client}",
        sorted(path for path in project.rglob("*") if path.suffix in (".java", ".xml")),
        lambda folder: [
            *("mvn", "--batch-mode", "--quiet", "--file", str(project / "pom.xml")),
            f"-Dclient.artifact={artifact}",
            f"-Dclient.version={version}",
            f"-Dbuild.folder={folder}",
            "process-classes",
        ],
    )
    return [
        *(*_JAVA, *SHORT_LIVED, f"-Xmx{heap}"),
        *("-cp", f"{folder}/classes:{folder}/jars/*", main),
    ]


def go_build(name: str, project: Path, program: str) -> Path:
    """Return what is built of a Go project: ``program`` in a folder; built if it is not yet."""
    require_tools("go")
    folder = built(
        name,
        sorted(path for path in project.iterdir() if path.suffix in (".go", ".mod", ".sum")),
        # Without C: its own zstd in C would take a minute to compile, and a network in C would
        # have all that is above it compiled twice.
        lambda target: [
            *("env", "CGO_ENABLED=0", "go", "build", "-C", str(project), *QUICK_GO),
            *("-o", str(target / program), "."),
        ],
        # Two builds at once would compile the same libraries: none of them is in the cache yet.
        turn="go",
    )
    return folder / program


def go_program() -> str:
    """Return the program of ``tests/e2e/go``, built if it is not yet."""
    return str(go_build("go", ROOT / "tests" / "e2e" / "go", "checks"))


def java_v5_program(main: str, heap: str, *, flags: Sequence[str] = SHORT_LIVED) -> list[str]:
    """Return the command that runs a class of ``tests/e2e/java_v5``, built if it is not yet."""
    require_tools("java", "mvn")
    project = ROOT / "tests" / "e2e" / "java_v5"
    folder = built(
        "java-v5",
        sorted(path for path in project.rglob("*") if path.suffix in (".java", ".xml")),
        lambda folder: [
            *("mvn", "--batch-mode", "--quiet", "--file", str(project / "pom.xml")),
            f"-Dbuild.folder={folder}",
            "process-classes",
        ],
    )
    return [*_JAVA, *flags, f"-Xmx{heap}", "-cp", f"{folder}/classes:{folder}/jars/*", main]


def run_checks(
    command: Sequence[str], system: PulsarSystem, *, environment: Mapping[str, str] = {}
) -> dict[str, Checked]:
    """Run a program of checks, carrying out its requests to the cluster; results by check."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    complaints: list[str] = []
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: complaints.extend(process.stderr or ()))
    reading.start()
    watchdog = threading.Timer(RUN_S_MAX, process.kill)
    watchdog.start()
    results: dict[str, Checked] = {}
    try:
        for line in process.stdout:
            content = json.loads(line)
            if "measured" in content:
                print(f"{content['measured']}: {content['ms']} ms")
            elif "ask" in content:
                process.stdin.write(_answer(system, content["ask"], content["topic"]) + "\n")
                process.stdin.flush()
            else:
                results[content["check"]] = Checked(content["check"], content["error"])
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        reading.join()
        process.stdin.close()
        process.stdout.close()
        process.stderr.close()
    assert results, "".join(complaints)[-3000:]
    return results


def _answer(system: PulsarSystem, question: str, topic: str) -> str:
    answers: dict[str, Callable[[], object]] = {
        "create": lambda: system.create_topic(topic),
        "delete": lambda: system.repeated_command("topics", "delete", topic, "--force"),
        "is absent": lambda: _absent(system, topic),
        "create with 4 partitions": lambda: system.create_topic(topic, partitions=4),
        "create with 4 segments": lambda: system.create_scalable(topic, 4),
        "give it properties": lambda: system.set_properties(topic, _properties(topic)),
        "take its properties": lambda: system.set_properties(topic, {}),
        "nobody consumes it": lambda: _until_unconsumed(system, topic),
        "delete for good": lambda: system.repeated_command(
            "scalable-topics", "delete", topic, "--force"
        ),
        "segments with messages": lambda: _segments_with_messages(system, topic),
        "split a segment": lambda: system.split_first(topic),
        "merge two segments": lambda: system.merge_first(topic),
        "migrate": lambda: system.command("scalable-topics", "migrate", topic),
        "move segments": lambda: _move_segments(system, topic),
        "kill owner of a segment": lambda: _kill_owner(system, system.segments_of(topic)[0]),
        "grow to 6 partitions": lambda: system.command("topics", "grow", topic, "6"),
        "a topic that must not be created": lambda: _closed_namespace(system),
        "http service url": lambda: system.http_url,
        "move": lambda: system.move(topic),
        "kill owner": lambda: _kill_owner(system, topic),
        "restart discovery": lambda: _restart_discovery(system),
    }
    try:
        if question in answers:
            return str(answers[question]() or "done")
        return str(_answer_about_scalable(system, question, topic) or "done")
    except Exception as error:
        return "cannot: " + str(error).replace("\n", " ")


def _properties(topic: str) -> dict[str, str]:
    """What a check filters by: its own topics have its name in a property."""
    return {"for": "consumers", "check": topic.rpartition("/")[0], "another": "x"}


def _until_unconsumed(system: PulsarSystem, topic: str) -> None:
    until = time.monotonic() + NEW_OWNER_S
    while any(
        subscription.consumers
        for each in system.segments_of(topic)
        for subscription in system.operate(each, pb.GetStatsRequest()).subscriptions
    ):
        assert time.monotonic() < until, f"{topic} still has consumers"
        time.sleep(0.05)


def _answer_about_scalable(system: PulsarSystem, question: str, topic: str) -> object:
    """Do something to a scalable topic; the question may end with words that say how."""
    match question.split(" "):
        case ["seek", "over", "HTTP", subscription, time_ms]:
            path = topic.removeprefix("topic://")
            return system.admin_rest(
                "POST", f"scalable/{path}/subscriptions/{subscription}/seek?timestamp={time_ms}"
            )
        case ["seek", subscription, time_ms]:
            words = ("seek", topic, "-s", subscription, "--to", time_ms)
        case ["clear", "backlog", subscription]:
            words = ("clear-backlog", topic, "-s", subscription)
        case ["delete", "scalable"]:
            words = ("delete", topic, "--force")
        case ["rebucket", buckets]:
            (segment,) = system.segments_of(topic)
            words = ("rebucket", topic, segment.rpartition("-")[2], "--buckets", buckets)
        case _:
            raise KeyError(question)
    return system.command("scalable-topics", *words)


def _closed_namespace(system: PulsarSystem) -> str:
    name = "e2e/closed"
    if not system.has_namespace(name):
        system.create_namespace(name, {"allowAutoTopicCreation": "false"})
    return f"persistent://{name}"


def _segments_with_messages(system: PulsarSystem, topic: str) -> int:
    stats = [
        system.operate(each, pb.GetInternalStatsRequest()) for each in system.segments_of(topic)
    ]
    return sum(each.entries > 0 for each in stats)


def _move_segments(system: PulsarSystem, topic: str) -> None:
    for each in system.segments_of(topic):
        system.move(each)


def _absent(system: PulsarSystem, topic: str) -> None:
    namespace, _, _ = topic.partition("://")[2].rpartition("/")
    assert topic not in system.topics_of(namespace), f"{topic} is there"


def _restart_discovery(system: PulsarSystem) -> None:
    """Kill each discovery node and start it again, one behind the other."""
    for node_id in system.discovery_nodes:
        system.kill(node_id)
        system.start(node_id)


def _kill_owner(system: PulsarSystem, topic: str) -> None:
    """Kill the topic's broker and wait until it has another.

    One that an earlier check killed is started first. Not every client looks up again when an
    address is dead: the Rust one tries it for 40 s.
    """
    system.start_dead()
    killed = system.owner(topic)
    system.kill(killed)
    deadline = time.monotonic() + NEW_OWNER_S
    while system.owner(topic) == killed:
        assert time.monotonic() < deadline, f"{topic} is still served by {killed}"
        time.sleep(0.02)
