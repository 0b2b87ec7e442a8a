"""Every block of the README runs, from top to bottom, on one cluster.

Named exceptions: what installs, what starts and stops the cluster of the reader (which
``test_command_line`` does), clusters of their own that take minutes, containers, and Spark.
The other documents have pictures, and few blocks that can be run: each of these runs here, or is
named with the test that runs its like. That all commands and options which documents name exist
is tested in ``tests/unit/test_documented_commands.py``.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nextgen.cli.local.plan import PORT_BASE_DEFAULT
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.cluster_proof import environment_of_child
from tests.support.processes.fork_server import start_warm
from tests.support.processes.local_cluster import BlockingCluster, ClusterSize, blocking_cluster

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=2, shards=4)
RESTORED_SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=12)
COMMAND_TIMEOUT_S = 110
FOLLOW_S = 0.5
"""Time for a command that goes on until Ctrl-C to fail. It goes on."""

OTHERWISE_TESTED = {
    "make demo": "a minute; tests/e2e does what it does",
    "make test": "it runs this",
    "make setup": "it made the environment of this test",
    "nextgen up --detach": "tests/integration/cli/test_command_line.py",
    "pip install pulsar-client": "it is installed",
    "pulsar-admin": "tests/e2e/clients/test_admin_tools.py",
    "nextgen shards verify": "a cluster of its own: tests/chaos",
    "nextgen chaos": "minutes: tests/chaos",
    "nextgen down": "tests/integration/cli/test_command_line.py",
    "nextgen pipeline": "Spark: tests/spark",
    "docker compose": "an engine: tests/containers",
    "mkdir -m 700 operator": "tests/containers",
}
"""What begins so is not run here, and why."""

RUN_ELSEWHERE = {
    "nextgen shards recover": "tests/integration/cli/test_disaster.py",
    "exec nextgen --cluster-secret-file": "tests/integration/cli/test_backup.py",
    "nextgen topics create-shadow": "tests/integration/cli/test_shadow_topics.py",
    "nextgen pipeline backtest": "tests/spark/test_backtest.py",
    "deploy/kubernetes/secrets.sh": "tests/unit/deploy/test_kubernetes.py",
    "- name: certs": "tests/unit/deploy/test_kubernetes.py",
    "[kill]": "tests/unit/harness/chaos/test_hooks.py",
}
"""Blocks of operations, chaos and flows by how a line of them begins, and a test of each."""

GOES_ON = "These go on until Ctrl-C"
PICTURES = re.compile("[▶─│◀]|DIR/|<epoch>|identity.json")
"""In blocks that show what talks to what, or what is on disk."""


def blocks(document: str = "README.md") -> Iterator[tuple[str, str, bool]]:
    """Yield language, text, and whether its commands go on, of each block that is to be run."""
    text = (ROOT / document).read_text()
    for found in re.finditer(r"(?ms)^```(\w*)\n(.*?)^```$", text):
        before = text[: found.start()].rstrip().rsplit("\n", 1)[-1]
        is_picture = not found[1] and PICTURES.search(found[2]) is not None
        if not is_picture:
            yield found[1], found[2], before.startswith(GOES_ON)


class Reader:
    """Runs what the README says, on a cluster with other ports."""

    def __init__(self, cluster: BlockingCluster) -> None:
        self._cluster = cluster
        self._first_port = cluster.plan.nodes[0].grpc_port
        self.ran: list[str] = []

    def run(self, language: str, block: str, *, goes_on: bool) -> None:
        block = self._with_ports(block)
        if language == "python":
            self._run_python(block)
            return
        while found := re.search(r"(?ms)^python - <<'PY'\n(.*?)^PY$", block):
            self._run_python(found[1])
            block = block.replace(found[0], "")
        for line in block.splitlines():
            command = re.split(r"\s+#", line)[0].strip()
            if command and not any(command.startswith(each) for each in OTHERWISE_TESTED):
                self.ran.append(command)
                self._run_line(shlex.split(command), goes_on=goes_on)

    def _with_ports(self, block: str) -> str:
        def moved(found: re.Match[str]) -> str:
            return str(self._first_port + int(found[0]) - PORT_BASE_DEFAULT)

        return re.sub(r"\b170[0-4]\d\b", moved, block)

    def _run_python(self, text: str) -> None:
        self.ran.append(text)
        names: dict[str, Any] = {}
        exec(compile(text, "README.md", "exec"), names)
        if "follow" in names:
            asyncio.run(self._followed(names["follow"]))

    @staticmethod
    async def _followed(follow: Any) -> None:
        following = asyncio.create_task(follow())
        await asyncio.wait({following}, timeout=FOLLOW_S)
        assert not following.done(), following.exception()
        following.cancel()
        await asyncio.wait({following})

    def _run_line(self, words: list[str], *, goes_on: bool) -> None:
        if words[0] == "curl":
            self._fetch(words[1:])
        elif words[:2] == ["nextgen", "restore"]:
            # The line before starts a cluster in this directory, and the next one ends it.
            with blocking_cluster(Path(words[-1]).absolute(), RESTORED_SIZE):
                self._invoke(words, os.environ)
        elif goes_on:
            self._follow(words)
        else:
            assert words[0] == "nextgen", f"nobody runs {words}"
            self._invoke(words, self._environment())

    @staticmethod
    def _invoke(words: list[str], environment: Mapping[str, str]) -> None:
        # In this process: a command's import would take longer than what it does.
        ended = CliRunner().invoke(app, words[1:], env=environment)
        assert ended.exit_code == 0, (words, ended.output, ended.exception)
        assert ended.output, f"{words} printed nothing"

    def _follow(self, words: list[str]) -> None:
        process = start_warm("nextgen", words[1:], environment=self._environment())
        time.sleep(FOLLOW_S)
        assert process.poll() is None, words
        process.send_signal(signal.SIGINT)
        # On a busy machine the signal may come before the command handles it.
        ended = (ExitCode.DONE, ExitCode.INTERRUPTED, -signal.SIGINT)
        assert process.wait(COMMAND_TIMEOUT_S) in ended, words

    @staticmethod
    def _fetch(words: list[str]) -> None:
        options = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
        name, _, value = options.get("-H", ": ").partition(": ")
        request = urllib.request.Request(
            words[-1],
            data=options["-d"].encode() if "-d" in options else None,
            headers={name: value} if name else {},
            method=options.get("-X", "GET"),
        )
        with urllib.request.urlopen(request, timeout=COMMAND_TIMEOUT_S) as answer:
            assert answer.status in (200, 204), words

    def _environment(self) -> dict[str, str]:
        return environment_of_child(os.environ) | {
            "NEXTGEN_DATA_DIR": str(self._cluster.cluster.data_dir)
        }


@pytest.mark.timeout(600)
def test_every_block_of_the_readme_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with blocking_cluster(tmp_path / "cluster", SIZE) as cluster:
        reader = Reader(cluster)
        for language, block, goes_on in blocks():
            reader.run(language, block, goes_on=goes_on)
        for language, block, _ in blocks("nextgen/export/README.md"):
            exported = block.replace("DIR", str(cluster.cluster.data_dir / "export"))
            reader.run(language, exported, goes_on=False)

    assert sum(each.startswith("nextgen ") for each in reader.ran) >= 25
    assert sum("\n" in each for each in reader.ran) == 4, "a client, two over gRPC, an export"


def test_blocks_of_other_documents_are_pictures_or_run_by_a_test() -> None:
    documents = ["docs/operations.md", "docs/reference.md", "docs/chaos.md"]
    documents += [
        str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/flows").glob("*.md"))
    ]

    not_run = {
        (document, block)
        for document in documents
        for _, block, _ in blocks(document)
        if not any(line.startswith(tuple(RUN_ELSEWHERE)) for line in block.splitlines())
    }

    assert not_run == set()
    assert [test for test in RUN_ELSEWHERE.values() if not (ROOT / test).is_file()] == []


def test_what_is_not_run_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()

    assert [each for each in OTHERWISE_TESTED if each not in text] == []
