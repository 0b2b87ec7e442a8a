"""``certs``: what an operator types, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.main import program
from nextgen.runtime.lifecycle.exit_code import ExitCode
from nextgen.runtime.security.authority import load_certificate, uris_of
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, identity_of


@pytest.fixture
def run(tmp_path: Path):
    def ran(*arguments: str):
        line = ["certs", *arguments, "--directory", str(tmp_path), "--json"]
        return CliRunner().invoke(program("certs"), line)

    return ran


def test_an_authority_issues_and_renews_certificates_of_nodes_and_clients(run, tmp_path: Path):
    assert run("init", "--cluster-id", "blue").exit_code == 0
    issued = run("issue", "broker", "broker-1", "--host", "b1.example", "--days", "20")
    assert run("issue", "client", "app").exit_code == 0

    (node,) = json.loads(issued.stdout)
    identity = identity_of(uris_of(load_certificate(Path(node["cert_file"]))))
    assert identity == NodeIdentity("blue", NodeRole.BROKER, "broker-1")

    (renewed,) = json.loads(run("renew").stdout)
    assert renewed["cert_file"] == node["cert_file"], "the other one is good for a year"
    assert renewed["ends_at"] > node["ends_at"]
    assert json.loads(run("renew").stdout) == []
    listed = {one["name"]: one["whose"] for one in json.loads(run("list").stdout)}
    assert listed == {"app": "CN=app", "broker-1": "broker broker-1 of blue", "ca": "CN=blue"}


def test_mistakes_are_one_sentence_and_change_nothing(run, tmp_path: Path):
    assert run("issue", "broker", "b").exit_code == ExitCode.CANNOT_RUN, "no authority yet"
    run("init")
    before = (tmp_path / "ca.key.pem").read_bytes()

    for mistake in (
        ("init",),
        ("issue", "king", "b"),
        ("issue", "broker", "../b"),
        ("issue", "broker", "ca"),
        ("issue", "broker", "b", "--host", "a b"),
        ("renew", "nobody"),
    ):
        outcome = run(*mistake)
        assert outcome.exit_code == ExitCode.CANNOT_RUN, mistake
        assert outcome.stdout == ""

    assert (tmp_path / "ca.key.pem").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2
