"""The compose file gives containers no more than they need, and each node its own key only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {
    name: service
    for name, service in COMPOSE["services"].items()
    if service["image"].startswith("pulsar-nextgen")
}
NODES = {name: service for name, service in OURS.items() if name[-1].isdigit()}
MOUNT_POINTS = re.compile(r"mkdir ([^&]*?)\s*(?:\\\n|&&|;)")


def mounts_of(service: dict) -> dict[str, str]:
    """Return where each volume is mounted, as ``path`` or ``path:ro``."""
    return dict(one.split(":", 1) for one in service.get("volumes", ()))


@pytest.mark.parametrize("name", OURS)
def test_every_container_is_without_privileges(name: str):
    service = OURS[name]

    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert "cap_add" not in service


@pytest.mark.parametrize("name", NODES)
def test_a_node_mounts_its_own_certificates_and_cannot_change_them(name: str):
    mounts = mounts_of(NODES[name])

    assert mounts.pop(f"{name}-certs") == "/certs:ro"
    assert set(mounts) <= {name, "ledgers"}
    assert NODES[name]["environment"]["NEXTGEN_TLS_KEY_FILE"] == "/certs/tls.key"


def test_keys_that_sign_are_mounted_where_certificates_are_made_and_nowhere_else():
    having = [name for name, one in OURS.items() if "authority" in mounts_of(one)]

    assert len(NODES) == 11
    assert having == ["certificates"]
    assert [name for name, one in OURS.items() if "operator" in mounts_of(one)] == [
        "certificates",
        "operator",
    ]


def test_each_node_gets_the_certificate_of_its_role_and_name():
    wanted = [one.partition("=")[0] for one in OURS["certificates"]["command"]]

    assert wanted == [*(f"{name[:-2]}/{name}" for name in NODES), "operator/operator"]
    delivered = mounts_of(OURS["certificates"])
    assert {f"{name}-certs": f"/nodes/{name}" for name in NODES}.items() <= delivered.items()


def test_new_volumes_belong_to_the_images_user():
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    made = {part for line in MOUNT_POINTS.findall(dockerfile) for part in line.split()}
    numbered = {one.replace("$number", number) for one in made for number in "123"}

    for service in OURS.values():
        for where in mounts_of(service).values():
            path = where.removesuffix(":ro")
            assert path in numbered or path.removeprefix("/nodes/") in numbered, path


def test_no_port_speaks_without_tls_or_is_published_beyond_this_machine():
    for name, service in OURS.items():
        arguments = " ".join(service.get("command", ()))
        assert "--pulsar-listen" not in arguments, name
        assert "NEXTGEN_INSECURE" not in service.get("environment", {}), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    served = [name for name in NODES if NODES[name].get("ports")]
    for name in served:
        environment = NODES[name]["environment"]
        assert environment["NEXTGEN_AUTHENTICATION_ENABLED"] == "true", name
        assert environment["NEXTGEN_AUTHORIZATION_ENABLED"] == "true", name


def test_prometheus_checks_whom_it_asks():
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    tls = {"ca_file": "/certs/ca.crt", "server_name": "node.compose.pulsar-nextgen"}

    assert [(job["scheme"], job["tls_config"]) for job in jobs] == [("https", tls)] * 4
    assert "trust:/certs:ro" in COMPOSE["services"]["prometheus"]["volumes"]
