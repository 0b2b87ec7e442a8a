"""Certificates of a whole cluster, made and renewed by one call that may be repeated."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import PROVISIONED_CERTIFICATES_MAX
from nextgen.runtime.security.authority import (
    RENEWED_DAYS_BEFORE,
    Authority,
    load_certificate,
    uris_of,
)
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, identity_of
from nextgen.runtime.security.provision import Wanted, parse_wanted, provisioned

NOW = datetime(2026, 11, 29, tzinfo=UTC)
CLUSTER = ["shard-node/shard-node-1", "broker/broker-1=broker-1,127.0.0.1", "operator/ada"]


@pytest.fixture
def make(tmp_path: Path):
    def made(*wanted: str, after: timedelta = timedelta(), cluster: str = "blue") -> list[str]:
        given = wanted or CLUSTER
        folder = tmp_path / "authority"
        issued = provisioned(folder, cluster, given, tmp_path / "nodes", now=NOW + after)
        return [files.cert_file.name.removesuffix(".cert.pem") for files in issued]

    return made


def test_each_node_gets_its_own_key_and_nobody_that_of_the_authority(make, tmp_path: Path):
    assert make() == ["shard-node-1", "broker-1", "ada"]

    for name, role in (("shard-node-1", NodeRole.SHARD_NODE), ("ada", NodeRole.OPERATOR)):
        files = {file.name: file for file in (tmp_path / "nodes" / name).iterdir()}
        assert sorted(files) == ["ca.crt", "tls.crt", "tls.key"]
        identity = identity_of(uris_of(load_certificate(files["tls.crt"])))
        assert identity == NodeIdentity("blue", role, name)
        assert stat.S_IMODE(files["tls.key"].stat().st_mode) == 0o600
        authority_key = (tmp_path / "authority" / "ca.key.pem").read_bytes()
        assert authority_key not in [file.read_bytes() for file in files.values()]


def test_a_repetition_changes_nothing_that_is_good(make, tmp_path: Path):
    make()
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "nodes").rglob("*.*")}

    assert make() == []
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_what_ends_soon_is_renewed_and_delivered(make, tmp_path: Path):
    make()
    delivered = tmp_path / "nodes" / "broker-1" / "tls.crt"
    ends_at = load_certificate(delivered).not_valid_after_utc
    almost = ends_at - NOW - timedelta(days=RENEWED_DAYS_BEFORE)

    assert make(after=almost - timedelta(minutes=1)) == []
    assert make(after=almost) == ["shard-node-1", "broker-1", "ada"]
    assert load_certificate(delivered).not_valid_after_utc > ends_at


def test_who_gets_other_hosts_and_what_was_lost_is_issued_again(make, tmp_path: Path):
    make()

    assert make(CLUSTER[0], "broker/broker-1=broker-1.example", CLUSTER[2]) == ["broker-1"]
    (tmp_path / "authority" / "ada.key.pem").unlink()
    assert make("operator/ada") == ["ada"]


def test_a_certificate_of_a_former_authority_is_issued_again(make, tmp_path: Path):
    make()
    Authority.make(tmp_path / "authority", "blue", replace=True, now=NOW)

    assert make() == ["shard-node-1", "broker-1", "ada"]


def test_who_is_wanted_is_read_from_one_text():
    assert parse_wanted("broker/b-1=b, 127.0.0.1") == Wanted(
        NodeRole.BROKER, "b-1", ("b", "127.0.0.1")
    )
    assert parse_wanted("operator/ada") == Wanted(NodeRole.OPERATOR, "ada")


@pytest.mark.parametrize(
    "wanted",
    [
        ("broker",),
        ("king/b",),
        ("broker/",),
        ("broker/../b",),
        ("broker/ca",),
        ("broker/b=",),
        ("broker/b=a,,b",),
        ("broker/b", "shard-node/b"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(make, tmp_path: Path, wanted):
    with pytest.raises(RefusesToStart):
        make(*wanted)

    assert list(tmp_path.iterdir()) == []


def test_the_authority_of_another_cluster_is_not_used(make):
    make()

    with pytest.raises(RefusesToStart, match="the authority of cluster blue, not green"):
        make(cluster="green")


def test_so_many_certificates_are_made_at_a_time_and_no_more(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(Authority, "ensure", lambda *_arguments, **_named: None)
    wanted = [f"broker/broker-{number}" for number in range(PROVISIONED_CERTIFICATES_MAX + 1)]

    assert provisioned(tmp_path, "blue", wanted[:-1]) == []
    with pytest.raises(RefusesToStart, match=r"1001 certificates are wanted, at most 1000"):
        provisioned(tmp_path, "blue", wanted)


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "nodes").write_text("a file is in the way")

    with pytest.raises(RefusesToStart, match=r"ca\.crt cannot be written: "):
        provisioned(tmp_path / "authority", "blue", CLUSTER, tmp_path / "nodes")
