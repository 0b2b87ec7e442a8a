"""A private certificate authority in a directory, for people who have none (ADR 0144).

    ca.cert.pem ca.key.pem          the authority; its key stays with whoever issues certificates
    NAME.cert.pem NAME.key.pem      one certificate, and its key

Keys are EC P-256, readable by their owner only. A file is written as a whole and never replaced
unless the caller says so.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import TLS_FILE_BYTES_MAX
from nextgen.runtime.security.node_identity import (
    SERVING_ROLES,
    NodeIdentity,
    NodeRole,
    identity_of,
    is_name,
)

CA_NAME = "ca"
AUTHORITY_DAYS = 3_650
"""Ten years: a new authority means new trust in every process and every client."""

CERTIFICATE_DAYS = 365
"""A year: certificates are replaced without a restart, so there is no reason for longer."""

RENEWED_DAYS_BEFORE = 30
"""Certificates are renewed this long before they end: time to notice that nothing renews them."""

DAYS_MAX = 36_500

_BACKDATED = timedelta(minutes=5)
"""Clocks of other machines may be behind the one that issues."""

_COMMON_NAME_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """What a certificate is to say. ``identity``: of a node or an operator, None of a client.

    ``common_name`` is the role by which Pulsar knows a client.
    """

    common_name: str
    identity: NodeIdentity | None = None
    hosts: tuple[str, ...] = ()
    """DNS names and IP addresses."""
    days: int = CERTIFICATE_DAYS


@dataclass(frozen=True, slots=True)
class IssuedFiles:
    """Where a certificate and its key are, and when the certificate ends."""

    cert_file: Path
    key_file: Path
    ends_at: datetime


def cert_file_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.cert.pem"


def key_file_of(directory: Path, name: str) -> Path:
    return directory / f"{name}.key.pem"


class Authority:
    """The authority of one cluster. ``make`` it once, ``load`` it later."""

    def __init__(
        self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self._directory = directory
        self._certificate = certificate
        self._key = key

    @property
    def cluster_id(self) -> str:
        """The cluster whose certificates it issues."""
        return _common_name(self._certificate)

    @classmethod
    def make(
        cls,
        directory: Path,
        cluster_id: str,
        *,
        days: int = AUTHORITY_DAYS,
        replace: bool = False,
        now: datetime | None = None,
    ) -> Authority:
        """Make an authority. ``replace``: also if the directory has one, whose key is lost then.

        Raises:
            RefusesToStart: There is one already, a value is invalid, or a file cannot be written.
        """
        if not is_name(cluster_id) or len(cluster_id) > _COMMON_NAME_CHARACTERS_MAX:
            raise RefusesToStart(
                f"the cluster id {cluster_id!r} is not a name of letters, digits, '.', '_' and "
                f"'-', at most {_COMMON_NAME_CHARACTERS_MAX} characters"
            )
        _check_days(days)
        files = cert_file_of(directory, CA_NAME), key_file_of(directory, CA_NAME)
        if not replace:
            _check_absent(*files)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(cluster_id)
        certificate = (
            _builder(name, name, key, days, now or datetime.now(UTC))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        _make_directory(directory)
        _write(files[1], _key_pem(key), replace=replace, mode=0o600)
        _write(files[0], _cert_pem(certificate), replace=replace, mode=0o644)
        return cls(directory, certificate, key)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """Return the authority of a directory.

        Raises:
            RefusesToStart: There is none, or its files are unusable; the message has the reason.
        """
        cert_file, key_file = cert_file_of(directory, CA_NAME), key_file_of(directory, CA_NAME)
        if not cert_file.exists() or not key_file.exists():
            raise RefusesToStart(
                f"{directory} has no authority (ca.cert.pem and ca.key.pem): "
                "make one with 'nextgen certs init'"
            )
        certificate = load_certificate(cert_file)
        key = _load_key(key_file)
        if _public_bytes(certificate.public_key()) != _public_bytes(key.public_key()):
            raise RefusesToStart(f"{key_file} is not the key of {cert_file}")
        return cls(directory, certificate, key)

    def request_for(
        self, role: NodeRole, name: str, hosts: Sequence[str] = ()
    ) -> CertificateRequest:
        """Return what the certificate of a process or an operator of this cluster is to say.

        Without hosts that of a process is for the names that its own machine has for itself.
        """
        if role in SERVING_ROLES and not hosts:
            hosts = ("localhost", "127.0.0.1", "::1", name)
        identity = NodeIdentity(self.cluster_id, role, name)
        return CertificateRequest(name, identity, node_hosts(hosts))

    def issue(
        self,
        file_name: str,
        request: CertificateRequest,
        *,
        replace: bool = False,
        now: datetime | None = None,
    ) -> IssuedFiles:
        """Issue a certificate with a new key, into ``file_name``.cert.pem and .key.pem.

        Raises:
            RefusesToStart: A value is invalid, a file is there already, or cannot be written.
        """
        at = now or datetime.now(UTC)
        if file_name == CA_NAME or not is_name(file_name):
            raise RefusesToStart(f"{file_name!r} cannot be the name of a certificate's files")
        self._check(request)
        directory = self._directory
        cert_file, key_file = cert_file_of(directory, file_name), key_file_of(directory, file_name)
        if not replace:
            _check_absent(cert_file, key_file)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(key, request, at)
        # Between the two writes key and certificate do not match, so a process that reloads them
        # then goes on with the former pair.
        _write(key_file, _key_pem(key), replace=replace, mode=0o600)
        _write(cert_file, _cert_pem(certificate), replace=replace, mode=0o644)
        return IssuedFiles(cert_file, key_file, certificate.not_valid_after_utc)

    def renew(
        self, file_name: str, *, days: int = CERTIFICATE_DAYS, now: datetime | None = None
    ) -> IssuedFiles:
        """Replace a certificate by one that says the same, with a new key and a later end.

        Raises:
            RefusesToStart: There is no such certificate, or this authority did not issue it.
        """
        cert_file = cert_file_of(self._directory, file_name)
        if not cert_file.exists():
            raise RefusesToStart(f"{cert_file} does not exist: issue it first")
        present = load_certificate(cert_file)
        if not self._has_issued(present):
            raise RefusesToStart(f"{cert_file} is not of the authority in this directory")
        request = CertificateRequest(
            _common_name(present), identity_of(uris_of(present)), _hosts_of(present), days
        )
        return self.issue(file_name, request, replace=True, now=now)

    def ensure(
        self, file_name: str, request: CertificateRequest, *, now: datetime | None = None
    ) -> IssuedFiles | None:
        """Issue a certificate, unless there is one that says the same and does not end soon.

        Return the files, None if those that are there stay.

        Raises:
            RefusesToStart: As ``issue``.
        """
        at = now or datetime.now(UTC)
        if self._is_good(file_name, request, at):
            return None
        return self.issue(file_name, request, replace=True, now=at)

    def _is_good(self, file_name: str, request: CertificateRequest, at: datetime) -> bool:
        cert_file = cert_file_of(self._directory, file_name)
        if not cert_file.exists() or not key_file_of(self._directory, file_name).exists():
            return False
        present = load_certificate(cert_file)
        said = _common_name(present), identity_of(uris_of(present)), set(_hosts_of(present))
        return (
            said == (request.common_name, request.identity, set(request.hosts))
            and self._has_issued(present)
            and present.not_valid_after_utc - at > timedelta(days=RENEWED_DAYS_BEFORE)
        )

    def _has_issued(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True

    def _signed(
        self, key: ec.EllipticCurvePrivateKey, request: CertificateRequest, at: datetime
    ) -> x509.Certificate:
        names: list[x509.GeneralName] = [_host_name(host) for host in request.hosts]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if request.identity is not None:
            names += [x509.DNSName(name) for name in request.identity.dns_names]
            names.append(x509.UniformResourceIdentifier(request.identity.uri))
        if request.hosts or (request.identity is not None and request.identity.dns_names):
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        subject, issuer = _named(request.common_name), self._certificate.subject
        days_left = (self._certificate.not_valid_after_utc - at).days
        if days_left < 1:
            raise RefusesToStart("the authority has expired: make another with --replace")
        builder = (
            _builder(subject, issuer, key, min(request.days, days_left), at)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _check(self, request: CertificateRequest) -> None:
        _check_days(request.days)
        name = request.common_name
        if not 1 <= len(name) <= _COMMON_NAME_CHARACTERS_MAX or not name.isprintable():
            raise RefusesToStart(
                f"the common name {name!r} must have 1 to {_COMMON_NAME_CHARACTERS_MAX} "
                "printable characters"
            )
        identity = request.identity
        if identity is not None and identity.cluster_id != self.cluster_id:
            raise RefusesToStart(
                f"this is the authority of cluster {self.cluster_id}, "
                f"the certificate is for {identity.cluster_id}"
            )


def load_certificate(file: Path) -> x509.Certificate:
    """Return the first certificate in a PEM file.

    Raises:
        RefusesToStart: The file cannot be read, or has none.
    """
    content = read_pem(file)
    try:
        return x509.load_pem_x509_certificates(content)[0]
    except ValueError as error:
        raise RefusesToStart(f"{file} has no certificate in PEM form") from error


def read_pem(file: Path) -> bytes:
    """Return the content of a file with certificates or a key.

    Raises:
        RefusesToStart: It cannot be read, or is too long for one.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(TLS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise RefusesToStart(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > TLS_FILE_BYTES_MAX:
        raise RefusesToStart(f"{file} has more than {TLS_FILE_BYTES_MAX} bytes")
    return content


def uris_of(certificate: x509.Certificate) -> list[str]:
    """Return the URIs among the alternative names of a certificate."""
    names = _alternative_names(certificate)
    return [] if names is None else names.get_values_for_type(x509.UniformResourceIdentifier)


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    names = _alternative_names(certificate)
    if names is None:
        return ()
    identity = identity_of(uris_of(certificate))
    own = set() if identity is None else set(identity.dns_names)
    dns = [name for name in names.get_values_for_type(x509.DNSName) if name not in own]
    return (*dns, *(str(address) for address in names.get_values_for_type(x509.IPAddress)))


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.removeprefix("*.").split(".")
    is_dns = host.isascii() and all(
        1 <= len(label) <= 63 and label.replace("-", "").replace("_", "").isalnum()
        for label in labels
    )
    if not is_dns:
        raise RefusesToStart(f"{host!r} is neither a DNS name nor an IP address")
    return x509.DNSName(host)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    at: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BACKDATED)
        .not_valid_after(at + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _load_key(file: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_pem(file), password=None)
    except (ValueError, TypeError) as error:
        raise RefusesToStart(f"{file} has no private key that can be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RefusesToStart(f"{file} has a key of another kind than this authority makes")
    return key


def _public_bytes(key: object) -> bytes:
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    assert isinstance(key, ec.EllipticCurvePublicKey), "authorities have EC keys"
    return key.public_bytes(encoding, form)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, none)


def _cert_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _check_days(days: int) -> None:
    if not 1 <= days <= DAYS_MAX:
        raise RefusesToStart(f"{days} days asked for, it must be 1 to {DAYS_MAX}")


def _check_absent(*files: Path) -> None:
    for file in files:
        if file.exists():
            raise RefusesToStart(f"{file} is there already: it is only replaced with --replace")


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RefusesToStart(f"{directory} cannot be made: {error.strerror or error}") from error


def _write(file: Path, content: bytes, *, replace: bool, mode: int) -> None:
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            if replace:
                draft.replace(file)
            else:
                # Unlike a rename, a link never replaces a file that another process made.
                os.link(draft, file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
    except OSError as error:
        raise RefusesToStart(f"{file} cannot be written: {error.strerror or error}") from error


def node_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of a certificate without repetitions, in their order."""
    return tuple(dict.fromkeys(hosts))
