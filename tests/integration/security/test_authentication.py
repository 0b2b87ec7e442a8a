"""A cluster that asks its clients for tokens: stock clients, REST, gRPC and the command line."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulsar
import pytest

from nextgen.cli.local.local_tokens import TOKEN_FILE, TOKENS
from nextgen.cli.local.plan import MINIMAL
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.greeting import Greeting
from nextgen.pulsar.server import PulsarServer
from nextgen.runtime.security.authentication.authenticator import Authenticator
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandPartitionedTopicMetadataResponse
from tests.support.callers.role_proofs import OTHER_SECRET, authenticator, token_of
from tests.support.callers.secured_cluster import SecuredCluster, client
from tests.support.processes.local_cluster import blocking_cluster

TOPIC = "persistent://public/default/secured"
REFUSED_S = 2
"""For how long a client that is refused connects again."""

REASONS = {
    "none": "proves its role",
    "expired": "the token has expired",
    "wrongly signed": "signature",
    "garbage": "three parts",
}
"""Why a server refuses a client, by its proof."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    data_dir = tmp_path_factory.mktemp("secured")
    with blocking_cluster(data_dir, MINIMAL, authentication=TOKENS, authorization=False) as cluster:
        yield SecuredCluster(cluster, data_dir)


def test_a_stock_client_with_a_token_produces_and_consumes(secured: SecuredCluster) -> None:
    stock = client(secured.pulsar_at("discovery"), secured.token(lasts_s=3_600))
    try:
        consumer = stock.subscribe(TOPIC, "s")
        stock.create_producer(TOPIC).send(b"hello")
        assert consumer.receive(15_000).data() == b"hello"
    finally:
        stock.close()


def test_a_stock_client_without_a_valid_token_is_refused_everywhere(
    secured: SecuredCluster,
) -> None:
    """All at once: the library connects again until its time-out, whatever the error says."""
    tokens = {
        "none": None,
        "expired": secured.token(lasts_s=-60),
        "wrongly signed": token_of("ada", secret=OTHER_SECRET).decode(),
        "garbage": "garbage",
    }

    def refusal(kind: str, proof: str) -> type[BaseException] | None:
        stock = client(secured.pulsar_at(kind), tokens[proof], timeout_s=REFUSED_S)
        try:
            stock.create_producer(TOPIC)
        except pulsar.PulsarException as error:
            return type(error)
        finally:
            stock.close()
        return None

    attempts = [(kind, proof) for kind in ("discovery", "broker") for proof in tokens]
    with ThreadPoolExecutor(len(attempts)) as threads:
        found = dict(zip(attempts, threads.map(lambda each: refusal(*each), attempts), strict=True))

    for (kind, proof), refused in found.items():
        assert refused in (pulsar.AuthenticationError, pulsar.ConnectError, pulsar.Timeout), proof
        assert REASONS[proof] in secured.cluster.cluster.log_path(f"{kind}-1").read_text()


def test_rest_answers_clients_with_a_token_only(secured: SecuredCluster) -> None:
    assert secured.http("/admin/v2/tenants", secured.token()) == (200, ["public"])
    for token in (None, "garbage", secured.token(lasts_s=-60)):
        status, answer = secured.http("/admin/v2/tenants", token)
        assert (status, bool(answer["reason"])) == (401, True)
    assert secured.http("/livez", None)[0] == 200


def test_the_command_line_takes_the_operators_token_or_another(secured: SecuredCluster) -> None:
    target = secured.cluster.plan.discovery_endpoints[0]
    local = {"NEXTGEN_DATA_DIR": str(secured.data_dir)}
    listing = ("namespaces", "list", "public", "--json")

    stranger = secured.command(*listing, "--target", target, NEXTGEN_DATA_DIR="/nowhere")
    assert (stranger.returncode, "proves its role" in stranger.stderr) == (78, True)

    with_file = ("--token-file", str(secured.data_dir / TOKEN_FILE))
    for answered in (
        secured.command(*listing, **local),
        secured.command(*with_file, *listing, "--target", target, NEXTGEN_DATA_DIR="/nowhere"),
        secured.command(
            *listing, "--target", target, NEXTGEN_TOKEN=secured.token(), NEXTGEN_DATA_DIR="/none"
        ),
    ):
        assert (answered.returncode, answered.stderr) == (0, "")

    topic = "persistent://public/default/by-the-command-line"
    assert secured.command("produce", topic, "hi", **local).returncode == 0


def test_no_token_or_key_is_in_any_log(secured: SecuredCluster) -> None:
    """After all the refusals above."""
    logs = "".join(file.read_text() for file in secured.cluster.cluster.logs_dir.glob("*.log"))
    token = (secured.data_dir / TOKEN_FILE).read_text().strip()

    assert "the client was refused" in logs
    assert not any(part in logs for part in token.split("."))
    assert ".eyJ" not in logs


# Expiry --------------------------------------------------------------------------------------


class PartitionsConnection(PulsarConnection):
    """Answers every question for partitions by none."""

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.PARTITIONED_METADATA:
            answer = CommandPartitionedTopicMetadataResponse(
                partitions=0,
                request_id=command.partitionMetadata.request_id,
                response=CommandPartitionedTopicMetadataResponse.Success,
            )
            self.send_command(
                BaseCommand(
                    type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
                    partitionMetadataResponse=answer,
                )
            )


class ShortLived:
    """A server that looks at its clients' proofs once a second, in a thread of its own."""

    def __init__(self, checking: Authenticator) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._checking = checking
        self._server = self._run(self._start())

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _start(self) -> PulsarServer:
        greeting = Greeting(authenticator=self._checking)
        server = PulsarServer(
            lambda alive: PartitionsConnection(alive, greeting), keep_alive_ms=1_000
        )
        await server.start("127.0.0.1", 0, "a test")
        return server

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self._server.port}"

    @property
    def connections(self) -> int:
        return self._server.connection_count

    def stop(self) -> None:
        self._run(self._server.stop(100))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


RENEWALS = 2
"""Of tokens that live for seconds: at the second one the first token has expired."""


@pytest.mark.parametrize("renews", [True, False])
def test_a_stock_client_keeps_its_connection_beyond_an_expiry_if_it_renews(renews: bool) -> None:
    checking = authenticator()
    server = ShortLived(checking)
    first = token_of("ada", lasts_s=6).decode()
    given: list[str] = []

    def token() -> str:
        given.append(token_of("ada", lasts_s=6).decode() if renews else first)
        return given[-1]

    stock = client(server.url, token)
    try:
        assert stock.get_topic_partitions(TOPIC) == [TOPIC]
        refused, until = checking.counts["authentications_token_refused"], time.monotonic() + 60
        while time.monotonic() < until and not (
            len(given) > RENEWALS or checking.counts["authentications_token_refused"] > refused
        ):
            time.sleep(0.1)
        assert (checking.counts["authentications_token_refused"] > refused) is not renews
        if renews:
            assert server.connections == 1
            assert stock.get_topic_partitions(TOPIC) == [TOPIC]
        while not renews and server.connections and time.monotonic() < until:
            time.sleep(0.1)
        assert server.connections == int(renews)
    finally:
        stock.close()
        server.stop()


def test_a_refused_proof_is_counted_where_it_was_refused(secured: SecuredCluster) -> None:
    def refused() -> float:
        address = secured.cluster.plan.of_kind("discovery")[0].http
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            page = answer.read().decode()
        name = 'nextgen_authentications_total{kind="token",outcome="refused"} '
        return float(page.split(name)[1].split("\n")[0])

    before = refused()
    assert secured.http("/admin/v2/tenants", "garbage")[0] == 401
    assert refused() == before + 1
