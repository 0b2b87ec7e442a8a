"""Certificates of a whole cluster: made, renewed and delivered by one call that may be repeated.

Who is to have one is written as in the certificate's URI, ``ROLE/NAME``, with the hosts by which
clients reach it behind a ``=``:

    broker/broker-1=broker-1,127.0.0.1      operator/operator
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.inbound import PROVISIONED_CERTIFICATES_MAX
from nextgen.runtime.security.authority import (
    CA_NAME,
    Authority,
    IssuedFiles,
    cert_file_of,
    key_file_of,
    read_pem,
)
from nextgen.runtime.security.node_identity import NodeRole, is_name
from nextgen.runtime.security.private_file import write_whole

DELIVERED_CA = "ca.crt"
DELIVERED_CERT = "tls.crt"
DELIVERED_KEY = "tls.key"
"""The names that Kubernetes and cert-manager give to the files of a certificate."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Who is to have a certificate. ``hosts``: none for those of their own machine."""

    role: NodeRole
    name: str
    hosts: tuple[str, ...] = ()


def parse_wanted(text: str) -> Wanted:
    """Return who is meant by ``ROLE/NAME`` or ``ROLE/NAME=HOST,...``.

    Raises:
        RefusesToStart: The text is something else.
    """
    who, has_hosts, hosts = text.partition("=")
    role, _, name = who.partition("/")
    if role not in tuple(NodeRole) or not is_name(name) or name == CA_NAME:
        raise RefusesToStart(
            f"{text!r} is not ROLE/NAME or ROLE/NAME=HOST,... with a role of {', '.join(NodeRole)}"
        )
    listed = tuple(host.strip() for host in hosts.split(",")) if has_hosts else ()
    if not all(listed):
        raise RefusesToStart(f"{text!r} has an empty host")
    return Wanted(NodeRole(role), name, listed)


def provisioned(
    directory: Path,
    cluster_id: str,
    wanted: Sequence[str],
    deliver_to: Path | None = None,
    *,
    now: datetime | None = None,
) -> list[IssuedFiles]:
    """Make an authority unless there is one, and the certificates that are missing or end soon.

    With ``deliver_to`` each one's three files are copied into a directory of its name there, if
    they differ from what that has. Return what was issued.

    Raises:
        RefusesToStart: A text is invalid, a name comes twice, or a file cannot be written. Nothing
            was written then, but for what came before a file that cannot be.
    """
    if len(wanted) > PROVISIONED_CERTIFICATES_MAX:
        raise RefusesToStart(
            f"{len(wanted)} certificates are wanted, at most {PROVISIONED_CERTIFICATES_MAX} "
            "are made at a time"
        )
    parsed = [parse_wanted(text) for text in wanted]
    names = [one.name for one in parsed]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RefusesToStart(f"these names come more than once: {', '.join(twice)}")
    at = now or datetime.now(UTC)
    authority = _authority(directory, cluster_id, at)
    requests = [authority.request_for(one.role, one.name, one.hosts) for one in parsed]
    issued = [
        files
        for request in requests
        if (files := authority.ensure(request.common_name, request, now=at)) is not None
    ]
    if deliver_to is not None:
        for name in names:
            _deliver(directory, name, deliver_to / name)
    return issued


def _authority(directory: Path, cluster_id: str, at: datetime) -> Authority:
    if not cert_file_of(directory, CA_NAME).exists():
        return Authority.make(directory, cluster_id, now=at)
    authority = Authority.load(directory)
    if authority.cluster_id != cluster_id:
        raise RefusesToStart(
            f"{directory} has the authority of cluster {authority.cluster_id}, not {cluster_id}"
        )
    return authority


def _deliver(directory: Path, name: str, destination: Path) -> None:
    # The key goes first: a process that reads in between finds a pair that does not fit, and goes
    # on with the one that it has.
    for source, target, mode in (
        (cert_file_of(directory, CA_NAME), DELIVERED_CA, 0o644),
        (key_file_of(directory, name), DELIVERED_KEY, 0o600),
        (cert_file_of(directory, name), DELIVERED_CERT, 0o644),
    ):
        _copy(source, destination / target, mode)


def _copy(source: Path, target: Path, mode: int) -> None:
    content = read_pem(source)
    try:
        if target.exists() and target.read_bytes() == content:
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RefusesToStart(f"{target} cannot be written: {error.strerror or error}") from error
    write_whole(target, content, mode=mode)
