"""What a container may do, whose keys it sees, and what a stranger gets at a published port."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import urllib.error
import urllib.request

import pulsar
import pytest
import yaml

from tests.containers.compose import COMPOSE_FILE, REST_URL, SERVICE_URL, Compose, Operator

SERVICES = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
NODES = [name for name in SERVICES if name[-1].isdigit()]
PUBLISHED = [int(port.split(":")[1]) for name in NODES for port in SERVICES[name].get("ports", ())]
RELOADED_S_MAX = 30
FOREIGN_FILES = "find /nodes /authority -type f"

pytestmark = pytest.mark.containers


@pytest.mark.parametrize("node", NODES)
def test_no_node_is_root_or_writes_its_root(compose: Compose, node: str):
    status = compose.inside(node, "cat", "/proc/1/status")
    values = {
        key: value.split()
        for key, _, value in (line.partition(":") for line in status.splitlines())
    }

    assert values["Uid"] == ["10001"] * 4
    assert values["CapEff"] == values["CapPrm"] == values["CapBnd"] == ["0" * 16]
    assert values["NoNewPrivs"] == ["1"]
    assert values["Seccomp"] == ["2"], "the engine's filter of system calls is on"
    script = "for at in / /opt/pulsar-nextgen /opt/venv /home /certs /usr/bin; do touch $at/x; done"
    refused = compose.inside(node, "sh", "-c", f"({script}) 2>&1; true")
    assert refused.count("Read-only file system") == 6, refused
    root = compose.described(node)["HostConfig"]
    assert root["ReadonlyRootfs"]
    assert not root["Privileged"]


@pytest.mark.parametrize("node", NODES)
def test_a_node_has_its_own_key_and_no_other(compose: Compose, node: str):
    files = compose.inside(node, "sh", "-c", "stat -c '%n %a %u' /certs/*").splitlines()
    subject = compose.inside(node, "openssl", "x509", "-noout", "-subject", "-in", "/certs/tls.crt")

    assert "/certs/tls.key 600 10001" in files
    assert subject.strip().endswith(f"CN = {node}")
    assert compose.inside(node, "sh", "-c", FOREIGN_FILES) == ""


def test_a_stranger_gets_nothing_at_a_published_port(compose: Compose, operator: Operator):
    assert len(PUBLISHED) == 14
    for port in PUBLISHED:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            plain.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert b"200" not in plain.recv(1024), f"port {port} speaks without TLS"
    trusting = ssl.create_default_context(cafile=operator.ca_file)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{REST_URL}/admin/v2/tenants", context=trusting, timeout=10)
    assert refused.value.code == 401
    refused.value.close()
    client = pulsar.Client(
        SERVICE_URL,
        tls_trust_certs_file_path=str(operator.ca_file),
        operation_timeout_seconds=3,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(operator.directory / "log")),
    )
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("persistent://public/default/strange")
    finally:
        client.close()


@pytest.mark.parametrize(("listener", "host"), [("", "127.0.0.1"), ("containers", "broker-")])
def test_a_client_reaches_brokers_from_the_host_or_from_a_container(
    compose: Compose, operator: Operator, listener: str, host: str
):
    topic = "persistent/public/default/where"
    trusting = ssl.create_default_context(cafile=operator.ca_file)
    proof = {"Authorization": f"Bearer {operator.token}"}
    create = urllib.request.Request(f"{REST_URL}/admin/v2/{topic}", headers=proof, method="PUT")
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(create, context=trusting, timeout=60)
    url = f"{REST_URL}/lookup/v2/topic/{topic}?listenerName={listener}"
    looked_up = urllib.request.Request(url, headers=proof)
    with urllib.request.urlopen(looked_up, context=trusting, timeout=60) as answer:
        found = json.load(answer)

    assert found["brokerUrlTls"].startswith(f"pulsar+ssl://{host}")
    assert found["brokerUrl"] == ""


def test_the_operators_command_line_runs_in_a_container_of_its_own(compose: Compose):
    shown = compose.run("run", "--rm", "-T", "operator", "status")

    for node in ("cluster-manager-1", "shard-node-1", "broker-1"):
        assert node in shown


def test_renewed_certificates_are_served_without_a_restart(compose: Compose):
    before = {port: _certificate_of(port) for port in (6651, 6751, 6761, 6653)}
    began = {node: compose.described(node)["State"]["StartedAt"] for node in NODES}
    renew = ("certs", "renew", "--within-days", "400", "--directory", "/authority")

    compose.run("run", "--rm", "-T", "--entrypoint", "nextgen", "certificates", *renew)
    assert {port: _certificate_of(port) for port in before} == before, "they are not delivered yet"
    compose.run("run", "--rm", "-T", "certificates")

    deadline = time.monotonic() + RELOADED_S_MAX
    waiting = set(before)
    while waiting:
        assert time.monotonic() < deadline, f"ports {waiting} serve the former certificate"
        waiting = {port for port in waiting if _certificate_of(port) == before[port]}
        time.sleep(0.5)
    assert {node: compose.described(node)["State"]["StartedAt"] for node in NODES} == began


def test_a_new_key_of_tokens_ends_the_former_ones_without_a_restart(
    compose: Compose, operator: Operator, tmp_path_factory: pytest.TempPathFactory
):
    assert _status_of_rest(operator) == 200

    remove = ("--entrypoint", "rm", "certificates", "/authority/token.public.der")
    compose.run("run", "--rm", "-T", *remove)
    compose.run("run", "--rm", "-T", "certificates")

    deadline = time.monotonic() + RELOADED_S_MAX
    while _status_of_rest(operator) != 401:
        assert time.monotonic() < deadline, "a token of the former key is still taken"
        time.sleep(0.5)
    renewed = compose.operator_into(tmp_path_factory.mktemp("operator"))
    assert _status_of_rest(renewed) == 200


def _status_of_rest(operator: Operator) -> int:
    request = urllib.request.Request(
        f"{REST_URL}/admin/v2/tenants", headers={"Authorization": f"Bearer {operator.token}"}
    )
    trusting = ssl.create_default_context(cafile=operator.ca_file)
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return int(error.code)


def _certificate_of(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)
