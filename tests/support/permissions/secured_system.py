"""A cluster with TLS, tokens and permissions, and stock clients that do one thing at a time there.

Each client library is a ``SecuredClient``: the Python one in this process, others as a program that
does what a line of its input says and prints what went wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pulsar

from nextgen.cli.local.local_tokens import KEY_FILE, OPERATOR_ROLE, TOKENS
from nextgen.cli.local.plan import MINIMAL
from nextgen.cli.local.security import authority_file
from tests.support.callers.role_proofs import OTHER_SECRET, token_of
from tests.support.processes.fork_server import run_warm
from tests.support.processes.local_cluster import BlockingCluster, blocking_cluster

COMMAND_TIMEOUT_S = 90
OPERATION_S = 30
"""Only what fails takes that long."""

HELD_S = 10
"""For a producer whose permission is taken back: its message is given up then."""

RECEIVE_MS = 30_000
CONTENT = b"hello"
REFUSED_S = 2
REFUSED_S_MAX = 60
WRONG_PROOFS = {
    "none": "proves its role",
    "expired": "the token has expired",
    "wrongly signed": "signature",
}
"""Why a server refuses a client, by its proof."""


class SecuredClient(Protocol):
    """A stock client library. ``do`` returns what went wrong, "" if nothing.

    ``produce``: send one message. ``consume``: take one by the subscription ``all``, from the
    earliest. ``hold``: send one, and keep the producer. ``send``: send another one by that.
    Operations are given up after ``patience_s``.
    """

    def do(self, what: str, topic: str, token: str, patience_s: int = OPERATION_S) -> str: ...

    def close(self) -> None: ...


class SecuredSystem:
    """A running cluster as its operator sees it."""

    def __init__(self, cluster: BlockingCluster, data_dir: Path) -> None:
        self._cluster = cluster
        self._data_dir = data_dir

    @property
    def service_url(self) -> str:
        return self._cluster.plan.service_url

    @property
    def authority_file(self) -> Path:
        return authority_file(self._data_dir)

    def token(self, role: str, *, lasts_s: float = 3_600) -> str:
        secret = (self._data_dir / KEY_FILE).read_bytes()
        return token_of(role, secret=secret, lasts_s=lasts_s).decode()

    def wrong_token(self, role: str, proof: str) -> str:
        """Return what a client sends that proves nothing; "": it sends no token."""
        return {
            "none": "",
            "expired": self.token(role, lasts_s=-60),
            "wrongly signed": token_of(role, secret=OTHER_SECRET, lasts_s=3_600).decode(),
        }[proof]

    def refused(self, proof: str) -> int:
        """Return how often a client with a wrong proof was refused by any process."""
        logs = [file.read_text() for file in self._cluster.cluster.logs_dir.glob("*.log")]
        return sum(log.count(WRONG_PROOFS[proof]) for log in logs)

    def command(self, *arguments: str) -> None:
        """Run ``nextgen`` as the operator."""
        result = run_warm(
            "nextgen",
            arguments,
            environment={**os.environ, "NEXTGEN_DATA_DIR": str(self._data_dir)},
            timeout_s=COMMAND_TIMEOUT_S,
        )
        assert result.returncode == 0, result


@contextmanager
def secured_system(data_dir: Path) -> Iterator[SecuredSystem]:
    """Start one process of each kind, with TLS, tokens and permissions; stop them at the end."""
    with blocking_cluster(data_dir, MINIMAL, authentication=TOKENS, tls=True) as cluster:
        yield SecuredSystem(cluster, data_dir)


class PythonClient:
    """The stock Python client: a ``SecuredClient``."""

    def __init__(self, system: SecuredSystem) -> None:
        self._system = system
        self._held: dict[str, tuple[pulsar.Client, pulsar.Producer]] = {}

    def do(self, what: str, topic: str, token: str, patience_s: int = OPERATION_S) -> str:
        """See ``SecuredClient``."""
        try:
            self._do(what, topic, token, patience_s)
        except (pulsar.PulsarException, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def close(self) -> None:
        """Close the clients whose producers are held."""
        for client, _ in self._held.values():
            with suppress(pulsar.PulsarException):
                client.close()

    def _do(self, what: str, topic: str, token: str, patience_s: int) -> None:
        if what == "send":
            self._held[topic][1].send(CONTENT)
            return
        client = pulsar.Client(
            self._system.service_url,
            authentication=pulsar.AuthenticationToken(token) if token else None,
            tls_trust_certs_file_path=str(self._system.authority_file),
            tls_validate_hostname=True,
            operation_timeout_seconds=patience_s,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )
        is_held = False
        try:
            if what == "consume":
                start = pulsar.InitialPosition.Earliest
                consumer = client.subscribe(topic, "all", initial_position=start)
                message = consumer.receive(RECEIVE_MS)
                assert message.data() == CONTENT
                consumer.acknowledge(message)
                return
            producer = client.create_producer(topic, send_timeout_millis=patience_s * 1_000)
            producer.send(CONTENT)
            if what == "hold":
                self._held[topic] = (client, producer)
                is_held = True
        finally:
            if not is_held:
                with suppress(pulsar.PulsarException):
                    client.close()


class ForeignClient:
    """A program in another language: a ``SecuredClient``."""

    def __init__(self, command: Sequence[str], system: SecuredSystem) -> None:
        self._process = subprocess.Popen(
            [*command, system.service_url, str(system.authority_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def do(self, what: str, topic: str, token: str, patience_s: int = OPERATION_S) -> str:
        """See ``SecuredClient``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\t{topic}\t{token}\t{patience_s}\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline())["error"])

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()


# What is expected of every client library ------------------------------------------------------


def check_the_operator_produces_and_consumes(
    system: SecuredSystem, client: SecuredClient, topic: str
) -> None:
    token = system.token(OPERATOR_ROLE)
    assert client.do("produce", topic, token) == ""
    assert client.do("consume", topic, token) == ""


def check_a_wrong_proof_is_refused(
    system: SecuredSystem, client: SecuredClient, topic: str, proof: str
) -> None:
    """A client library may connect again until its time-out, and say that.

    It may also give up before a busy server has looked at its proof: then it is asked again.
    """
    token = system.wrong_token(OPERATOR_ROLE, proof)
    deadline = time.monotonic() + REFUSED_S_MAX
    for what in ("produce", "consume"):
        before = system.refused(proof)
        while system.refused(proof) == before:
            error = client.do(what, topic, token, REFUSED_S).lower()
            assert any(word in error for word in ("authentication", "connect", "time")), error
            assert time.monotonic() < deadline, error


def check_permissions_decide(system: SecuredSystem, client: SecuredClient, topic: str) -> None:
    """A role may do what it is permitted, and its connection ends when that is revoked."""
    assert client.do("produce", topic, system.token(OPERATOR_ROLE)) == ""
    ada = system.token("ada")
    assert "authoriz" in client.do("produce", topic, ada).lower()
    system.command("permissions", "grant", topic, "ada", "produce")
    assert client.do("hold", topic, ada, HELD_S) == ""
    assert "authoriz" in client.do("consume", topic, ada).lower()
    system.command("permissions", "grant", topic, "bob", "consume")
    bob = system.token("bob")
    assert client.do("consume", topic, bob) == ""
    assert "authoriz" in client.do("produce", topic, bob).lower()
    assert client.do("send", topic, ada) == ""

    system.command("permissions", "revoke", topic, "ada")
    assert client.do("send", topic, ada) != "", "it goes on producing"
    assert "authoriz" in client.do("produce", topic, ada).lower()
