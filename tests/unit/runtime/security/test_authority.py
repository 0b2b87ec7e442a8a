"""A private authority: what its certificates say, and what it refuses to do."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import TLS_FILE_BYTES_MAX
from nextgen.runtime.security.authority import (
    AUTHORITY_DAYS,
    Authority,
    CertificateRequest,
    load_certificate,
    read_pem,
    uris_of,
)
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, identity_of

BROKER = NodeIdentity("blue", NodeRole.BROKER, "broker-1")
NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.make(tmp_path, "blue", now=NOW)


def names_in(file: Path) -> x509.SubjectAlternativeName:
    certificate = load_certificate(file)
    return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_only_its_owner_can_read_a_key(authority: Authority, tmp_path: Path):
    issued = authority.issue("broker-1", CertificateRequest("broker-1", BROKER))

    for file in (tmp_path / "ca.key.pem", issued.key_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_nodes_certificate_says_who_it_is_and_where(authority: Authority):
    request = CertificateRequest("broker-1", BROKER, ("b1.example", "10.0.0.7"), days=90)

    issued = authority.issue("broker-1", request, now=NOW)

    names = names_in(issued.cert_file)
    assert identity_of(uris_of(load_certificate(issued.cert_file))) == BROKER
    assert names.get_values_for_type(x509.DNSName) == [
        "b1.example",
        "broker.blue.pulsar-nextgen",
        "node.blue.pulsar-nextgen",
    ]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7"]
    assert issued.ends_at == NOW + timedelta(days=90)


def test_a_clients_certificate_has_its_role_as_common_name_and_no_identity(authority: Authority):
    issued = authority.issue("app", CertificateRequest("app"))

    certificate = load_certificate(issued.cert_file)
    assert certificate.subject.rfc4514_string() == "CN=app"
    assert uris_of(certificate) == []


def test_a_certificate_never_outlives_its_authority(authority: Authority):
    late = NOW + timedelta(days=AUTHORITY_DAYS - 10)

    issued = authority.issue("broker-1", CertificateRequest("broker-1", BROKER), now=late)

    assert issued.ends_at == NOW + timedelta(days=AUTHORITY_DAYS)
    with pytest.raises(RefusesToStart, match="has expired"):
        authority.issue("app", CertificateRequest("app"), now=late + timedelta(days=11))


def test_renewing_keeps_what_a_certificate_says_and_changes_its_key(authority: Authority):
    request = CertificateRequest("broker-1", BROKER, ("b1.example", "10.0.0.7"))
    before = authority.issue("broker-1", request, now=NOW)
    old_names, old_key = names_in(before.cert_file), before.key_file.read_bytes()

    after = authority.renew("broker-1", now=NOW + timedelta(days=300))

    assert names_in(after.cert_file) == old_names
    assert after.key_file.read_bytes() != old_key
    assert after.ends_at == NOW + timedelta(days=300 + 365)


def test_files_are_replaced_only_when_that_is_asked_for(authority: Authority, tmp_path: Path):
    authority.issue("app", CertificateRequest("app"))
    key = (tmp_path / "app.key.pem").read_bytes()

    with pytest.raises(RefusesToStart, match="only replaced with --replace"):
        authority.issue("app", CertificateRequest("app"))
    with pytest.raises(RefusesToStart, match="only replaced with --replace"):
        Authority.make(tmp_path, "blue")

    assert (tmp_path / "app.key.pem").read_bytes() == key
    authority.issue("app", CertificateRequest("app"), replace=True)
    assert (tmp_path / "app.key.pem").read_bytes() != key


@pytest.mark.parametrize(
    ("name", "request_", "why"),
    [
        ("ca", CertificateRequest("x"), "cannot be the name"),
        ("../x", CertificateRequest("x"), "cannot be the name"),
        ("x", CertificateRequest(""), "1 to 64 printable"),
        ("x", CertificateRequest("a" * 65), "1 to 64 printable"),
        ("x", CertificateRequest("a\nb"), "1 to 64 printable"),
        ("x", CertificateRequest("x", days=0), "0 days asked for"),
        ("x", CertificateRequest("x", hosts=("a b",)), "neither a DNS name nor an IP address"),
        (
            "x",
            CertificateRequest("x", NodeIdentity("red", NodeRole.BROKER, "x")),
            "authority of cluster blue",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    authority: Authority, tmp_path: Path, name: str, request_: CertificateRequest, why: str
):
    before = sorted(tmp_path.iterdir())

    with pytest.raises(RefusesToStart, match=why):
        authority.issue(name, request_)

    assert sorted(tmp_path.iterdir()) == before


def test_a_certificate_of_another_authority_is_not_renewed(authority: Authority, tmp_path: Path):
    other = Authority.make(tmp_path / "other", "blue")
    issued = other.issue("app", CertificateRequest("app"))
    (tmp_path / "app.cert.pem").write_bytes(issued.cert_file.read_bytes())

    with pytest.raises(RefusesToStart, match="not of the authority in"):
        authority.renew("app")
    with pytest.raises(RefusesToStart, match="does not exist: issue it first"):
        authority.renew("nobody")


def test_an_authority_is_loaded_with_its_own_key_only(authority: Authority, tmp_path: Path):
    assert Authority.load(tmp_path).cluster_id == "blue"
    with pytest.raises(RefusesToStart, match="make one with 'nextgen certs init'"):
        Authority.load(tmp_path / "nowhere")

    other = Authority.make(tmp_path / "other", "blue")
    assert other.cluster_id == "blue"
    (tmp_path / "ca.key.pem").write_bytes((tmp_path / "other" / "ca.key.pem").read_bytes())
    with pytest.raises(RefusesToStart, match="is not the key of"):
        Authority.load(tmp_path)


def test_a_file_may_have_so_many_bytes_and_no_more(tmp_path: Path):
    file = tmp_path / "bundle.pem"
    file.write_bytes(b"x" * TLS_FILE_BYTES_MAX)
    assert len(read_pem(file)) == TLS_FILE_BYTES_MAX

    file.write_bytes(b"x" * (TLS_FILE_BYTES_MAX + 1))
    with pytest.raises(RefusesToStart, match="has more than"):
        read_pem(file)
