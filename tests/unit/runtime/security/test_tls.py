"""Files with certificates: what is taken, what is refused, and when they are read again."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import TLS_FILES_CHECK_MS
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole
from nextgen.runtime.security.process_tls import (
    CallerTls,
    tls_environment_of_child,
    tls_in_use,
    tls_of_environment,
    tls_of_files,
    tls_of_node,
    use_tls,
)
from nextgen.runtime.security.tls import TlsStore, client_context
from nextgen.runtime.tls_settings import TlsFiles, TlsSettings
from tests.support.certificates import CLUSTER, Certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")


@pytest.fixture
def restored():
    before = tls_in_use()
    yield
    use_tls(before)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_check(self) -> None:
        self.now += TLS_FILES_CHECK_MS / 1_000


def changed(file: Path, content: bytes) -> None:
    """Change a file as a later moment would, however coarse the file system's clock is."""
    before = file.stat().st_mtime_ns
    file.write_bytes(content)
    os.utime(file, ns=(before + 1_000_000, before + 1_000_000))


def test_contexts_speak_modern_tls_without_renegotiation_or_compression(made: Certificates):
    store = TlsStore(made.files(NodeRole.BROKER, "b"))

    for context in (store.server_context(ssl.CERT_REQUIRED), store.client_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION
        assert {cipher["aead"] for cipher in context.get_ciphers()} == {True}
        exchanges = {cipher["kea"] for cipher in context.get_ciphers()}
        assert exchanges <= {"kx-ecdhe", "kx-any"}


def test_a_renewed_certificate_is_used_without_a_restart(made: Certificates):
    clock = Clock()
    store = TlsStore(made.files(NodeRole.BROKER, "b"), clock)
    before, context = store.material, store.server_context(ssl.CERT_REQUIRED)

    made.authority.renew("b")
    assert store.material is before, "files are not looked at at each handshake"
    clock.pass_check()

    assert store.material.certificate != before.certificate
    assert store.server_context(ssl.CERT_REQUIRED) is not context
    assert store.reloads == 1


def test_unusable_files_leave_the_ones_before_in_use_until_they_are_right(made: Certificates):
    clock = Clock()
    files = made.files(NodeRole.BROKER, "b")
    store = TlsStore(files, clock)
    before = store.material
    other = made.files(NodeRole.BROKER, "c")

    changed(files.key_file, other.key_file.read_bytes())
    clock.pass_check()
    assert store.material is before

    changed(files.cert_file, b"")
    clock.pass_check()
    assert store.material is before

    files.cert_file.unlink()
    clock.pass_check()
    assert store.material is before

    made.files(NodeRole.BROKER, "b", replace=True)
    clock.pass_check()
    assert store.material.certificate != before.certificate


def test_a_certificate_for_somebody_else_is_not_taken_in_place_of_ones_own(made: Certificates):
    clock = Clock()
    files = made.files(NodeRole.BROKER, "b")
    store = TlsStore(files, clock)
    other = made.files(NodeRole.CLUSTER_MANAGER, "m")

    changed(files.key_file, other.key_file.read_bytes())
    changed(files.cert_file, other.cert_file.read_bytes())
    clock.pass_check()

    assert store.material.identity == NodeIdentity(CLUSTER, NodeRole.BROKER, "b")


def test_a_client_may_have_a_certificate_and_its_key(made: Certificates, tmp_path: Path):
    files, other = made.client("app"), made.client("other")
    missing = tmp_path / "missing.pem"
    for ca_file in (None, made.ca_file):
        assert client_context(ca_file, (files.cert_file, files.key_file)).check_hostname

    for own, why in (
        ((files.cert_file, other.key_file), "is not the key of"),
        ((files.cert_file, missing), "missing.pem cannot be read"),
        ((missing, files.key_file), "missing.pem cannot be read"),
        ((files.key_file, files.key_file), "has no certificate"),
    ):
        with pytest.raises(RefusesToStart, match=why):
            client_context(None, own)


def test_files_that_cannot_be_used_are_named(made: Certificates, tmp_path: Path):
    files = made.files(NodeRole.BROKER, "b")
    other = made.files(NodeRole.BROKER, "c")
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.touch()

    for wrong, why in (
        (TlsFiles(missing, files.key_file, files.ca_file), "missing.pem cannot be read"),
        (TlsFiles(empty, files.key_file, files.ca_file), "empty.pem has no certificate"),
        (TlsFiles(files.cert_file, files.key_file, empty), "empty.pem has no certificate"),
        (TlsFiles(files.cert_file, other.key_file, files.ca_file), "c.key.pem is not the key of"),
        (TlsFiles(files.cert_file, empty, files.ca_file), "empty.pem is not the key of"),
    ):
        with pytest.raises(RefusesToStart, match=why):
            TlsStore(wrong)


def test_a_key_with_a_password_is_refused_instead_of_asking_for_it(
    made: Certificates, tmp_path: Path
):
    files = made.files(NodeRole.BROKER, "b")
    key = serialization.load_pem_private_key(files.key_file.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(RefusesToStart, match="or has a password"):
        TlsStore(TlsFiles(files.cert_file, locked, files.ca_file))


@pytest.mark.usefixtures("restored")
def test_a_process_with_somebody_elses_certificate_refuses_to_start(made: Certificates):
    settings = TlsSettings(made.files(NodeRole.SHARD_NODE, "n-1"))

    for cluster_id, role, node_id in (
        ("red", NodeRole.SHARD_NODE, "n-1"),
        (CLUSTER, NodeRole.CLUSTER_MANAGER, "n-1"),
        (CLUSTER, NodeRole.SHARD_NODE, "n-2"),
    ):
        with pytest.raises(RefusesToStart, match="is for shard-node n-1 of blue, this is"):
            tls_of_node(settings, cluster_id, role, node_id)

    tls = tls_of_node(settings, CLUSTER, NodeRole.SHARD_NODE, "n-1")
    assert tls_in_use() is tls.nodes is not None


@pytest.mark.usefixtures("restored")
def test_a_child_process_finds_the_certificate_in_use(made: Certificates):
    use_tls(None)
    assert tls_environment_of_child() == {}

    use_tls(made.node(NodeRole.OPERATOR, "me"))
    found = tls_of_environment(tls_environment_of_child())

    assert found is not None
    assert found.identity == NodeIdentity(CLUSTER, NodeRole.OPERATOR, "me")


@pytest.mark.usefixtures("restored")
def test_a_client_names_an_authority_alone_or_its_own_certificate_too(made: Certificates):
    files = made.client("app")
    for own in (None, TlsFiles(files.cert_file, files.key_file, made.ca_file)):
        use_tls(CallerTls(made.ca_file, own))
        found = tls_of_environment(tls_environment_of_child())

        assert found == CallerTls(made.ca_file, own)
        assert found.client_context().check_hostname


def test_half_of_what_is_needed_in_the_environment_is_refused(made: Certificates):
    assert tls_of_environment({}) is None
    with pytest.raises(RefusesToStart, match="together, or the last one alone"):
        tls_of_environment({"NEXTGEN_TLS_CERT_FILE": "x"})
    with pytest.raises(RefusesToStart, match="cannot be read"):
        tls_of_environment({"NEXTGEN_TLS_CA_FILE": str(made.directory / "missing")})
    with pytest.raises(RefusesToStart, match="for no node and no operator"):
        tls_of_files(made.client("app"))
