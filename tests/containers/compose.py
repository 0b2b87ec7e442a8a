"""One project of the compose file, and what an operator on the host needs of it.

Needs a container engine; `make compose-test` runs its tests. Both spellings of the tool are tried:
the plugin (`docker compose`) and the older program (`docker-compose`); one that is not there is
skipped by name, and a machine with neither fails.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
DISCOVERY = ["127.0.0.1:6751", "127.0.0.1:6752"]
BROKERS = {f"broker-{number}": f"127.0.0.1:{6770 + number}" for number in (1, 2, 3)}
"""Where the brokers' gRPC is published: what they advertise is for the other containers."""

SERVICE_URL = "pulsar+ssl://127.0.0.1:6651,127.0.0.1:6661"
REST_URL = "https://127.0.0.1:6761"
KILLED_S_MAX = 30


def tools() -> list[list[str]]:
    tools = []
    if shutil.which("docker"):
        plugin = subprocess.run(
            ["docker", "compose", "version"], capture_output=True, timeout=30, check=False
        )
        if plugin.returncode == 0:
            tools.append(["docker", "compose"])
    if shutil.which("docker-compose"):
        tools.append(["docker-compose"])
    return tools


class Compose:
    """One project of the compose file, under either tool."""

    def __init__(self, tool: list[str], project: str) -> None:
        self._command = [*tool, "--file", str(COMPOSE_FILE), "--project-name", project]
        self._project = project
        self.started = 0.0

    def up(self) -> None:
        """Start everything, as a user does."""
        self.started = time.monotonic()
        self.run("up", "--detach")

    def run(self, *arguments: str, timeout_s: int = 300) -> str:
        return self._output(*arguments, timeout_s=timeout_s).decode()

    def inside(self, service: str, *command: str) -> str:
        """Return what a command in the service's container prints."""
        return _engine("exec", self._container(service), *command)

    def described(self, service: str) -> dict[str, Any]:
        """Return what the engine says of the service's container."""
        (described,) = json.loads(_engine("inspect", self._container(service)))
        return dict(described)

    def _container(self, service: str) -> str:
        # The engine is asked: the older tool is a program in Python, which takes a second to start.
        labels = {"project": self._project, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{key}={labels[key]}" for key in labels]
        return _engine("ps", "--quiet", "--all", *filters).strip()

    def operator_into(self, directory: Path) -> Operator:
        """Copy the operator's files to the host, as the compose file says how."""
        packed = self._output(
            *("run", "--rm", "-T", "--entrypoint", "tar", "operator"), "-C", "/certs", "-c", "."
        )
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            for member in files:
                if (content := files.extractfile(member)) is not None:
                    (directory / Path(member.name).name).write_bytes(content.read())
        return Operator(directory)

    def _output(self, *arguments: str, timeout_s: int = 300) -> bytes:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, timeout=timeout_s, check=False
        )
        said = (done.stdout[-2000:] + done.stderr[-4000:]).decode(errors="replace")
        assert done.returncode == 0, f"{arguments}: {said}"
        return done.stdout

    def kill(self, service: str) -> None:
        """Kill the service's container (SIGKILL); it stays dead until it is started."""
        # Only the short option is known to both tools, and an unknown one is no error to the older.
        self.run("kill", "-s", "SIGKILL", service)
        deadline = time.monotonic() + KILLED_S_MAX
        while service in (running := self._running()):
            assert time.monotonic() < deadline, f"{service} runs on"
            time.sleep(0.1)
        assert running, "no container is left"

    def _running(self) -> list[str]:
        return self.run("ps", "--services", "--filter", "status=running").split()


def _engine(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator's files on the host."""

    directory: Path

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def cert_file(self) -> Path:
        return self.directory / "tls.crt"

    @property
    def key_file(self) -> Path:
        return self.directory / "tls.key"

    @property
    def token_file(self) -> Path:
        return self.directory / "token"

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()
