"""The Kubernetes manifests: restricted pods, and a secret with each pod's certificate."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from nextgen.runtime.security.authority import uris_of
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
MANIFESTS = [
    manifest
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]
SETS = {one["metadata"]["name"]: one["spec"] for one in MANIFESTS if one["kind"] == "StatefulSet"}
SERVED = {"discovery", "broker"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    directory = tmp_path_factory.mktemp("kubernetes") / "authority"
    return directory, secrets_from(directory)


def secrets_from(directory: Path, **environment: str) -> dict[str, dict[str, str]]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = subprocess.run(
        [str(FOLDER / "secrets.sh"), str(directory)],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {one["metadata"]["name"]: one["data"] for one in yaml.safe_load_all(printed)}


def test_every_file_of_the_folder_is_applied():
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]

    assert sorted([*listed, "kustomization.yaml"]) == sorted(
        one.name for one in FOLDER.glob("*.yaml")
    )
    assert sorted(SETS) == ["broker", "cluster-manager", "discovery", "shard-node"]


@pytest.mark.parametrize("role", SETS)
def test_a_pod_is_restricted(role: str):
    pod = SETS[role]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"


@pytest.mark.parametrize("role", SETS)
def test_each_pod_finds_its_certificate_in_the_secret_of_its_role(role: str, made):
    pod = SETS[role]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    secret = made[1][f"nextgen-{role}"]

    assert {"name": "certs", "mountPath": "/certs", "readOnly": True} in container["volumeMounts"]
    assert pod["volumes"][0]["secret"]["secretName"] == f"nextgen-{role}"
    for number in range(SETS[role]["replicas"]):
        files = {
            key: environment[f"NEXTGEN_TLS_{key}_FILE"]
            .replace("$(POD_NAME)", f"{role}-{number}")
            .removeprefix("/certs/")
            for key in ("CERT", "KEY", "CA")
        }
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secret[files["CERT"]]))
        assert uris_of(certificate) == [f"pulsar-nextgen://kubernetes/{role}/{role}-{number}"]
        certificate.verify_directly_issued_by(
            x509.load_pem_x509_certificate(base64.b64decode(secret[files["CA"]]))
        )
        assert b"PRIVATE KEY" in base64.b64decode(secret[files["KEY"]])
    assert len(secret) == 2 * SETS[role]["replicas"] + 1 + (role in SERVED)
    for setting in ("NEXTGEN_AUTHENTICATION_ENABLED", "NEXTGEN_AUTHORIZATION_ENABLED"):
        assert (environment.get(setting) == "true") == (role in SERVED)
    assert ("token.pub" in secret) == (role in SERVED)


def test_no_secret_has_a_key_that_signs(made):
    directory, secrets = made
    signing = [(directory / name).read_bytes() for name in ("ca.key.pem", "token.private.der")]

    for data in secrets.values():
        assert not [value for value in data.values() if base64.b64decode(value) in signing]


def test_a_repetition_prints_the_same_and_more_brokers_get_more(made):
    directory, secrets = made

    assert secrets_from(directory) == secrets
    more = secrets_from(directory, BROKERS="4")
    assert set(more["nextgen-broker"]) - set(secrets["nextgen-broker"]) == {
        "broker-3.cert.pem",
        "broker-3.key.pem",
    }
    assert {name for name in secrets if more[name] != secrets[name]} == {"nextgen-broker"}


def test_what_the_documents_ask_of_cert_manager_is_what_nodes_need():
    text = (FOLDER.parents[1] / "docs" / "operations.md").read_text()
    block = text.split("```yaml\n- name: certs\n")[1].split("```")[0]
    attributes = yaml.safe_load(block)["csi"]["volumeAttributes"]
    asked = {
        name.removeprefix("csi.cert-manager.io/"): value.replace("${POD_NAME}", "broker-0")
        for name, value in attributes.items()
    }
    identity = NodeIdentity("kubernetes", NodeRole.BROKER, "broker-0")

    assert asked["uri-sans"] == identity.uri
    assert set(identity.dns_names) < set(asked["dns-names"].split(","))
    assert {"server auth", "client auth"} < set(asked["key-usages"].split(","))
    assert asked["fs-group"] == str(
        SETS["broker"]["template"]["spec"]["securityContext"]["fsGroup"]
    )


def test_only_tls_ports_are_opened():
    for role, spec in SETS.items():
        arguments = " ".join(spec["template"]["spec"]["containers"][0]["args"])
        assert "--pulsar-listen" not in arguments, role
        assert ("--pulsar-tls-listen" in arguments) == (role in SERVED)
