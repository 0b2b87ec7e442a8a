"""``certs``: a private authority, and the certificates that it issues."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from nextgen.cli.console.options import JsonFlag
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import MetadataError, RefusesToStart
from nextgen.runtime.lifecycle.exit_code import code_of, print_error
from nextgen.runtime.security.authority import (
    AUTHORITY_DAYS,
    CA_NAME,
    CERTIFICATE_DAYS,
    RENEWED_DAYS_BEFORE,
    Authority,
    CertificateRequest,
    IssuedFiles,
    cert_file_of,
    load_certificate,
    node_hosts,
    uris_of,
)
from nextgen.runtime.security.node_identity import NodeRole, identity_of, is_name
from nextgen.runtime.security.provision import provisioned

CLIENT = "client"
"""A certificate for a client of Pulsar, whose common name is its role there."""

T = TypeVar("T")

certs = typer.Typer(help="A private certificate authority, for clusters that have none.")

Directory = Annotated[
    Path,
    typer.Option("--directory", "-d", help="Where the authority and the certificates are."),
]
Days = Annotated[int, typer.Option("--days", min=1, help="How long it is valid.")]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace files that are there; their keys are lost.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(certs, name="certs", no_args_is_help=True)


@certs.command()
def init(
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", help="The cluster whose nodes it certifies.")
    ] = "local",
    directory: Directory = Path("certs"),
    days: Days = AUTHORITY_DAYS,
    replace: Replace = False,
    json_output: JsonFlag = False,
) -> None:
    """Make an authority: ca.cert.pem, which everybody may have, and ca.key.pem, which nobody may.

    The key belongs on the machine where certificates are issued, and on no node of the cluster.
    """
    _told(lambda: Authority.make(directory, cluster_id, days=days, replace=replace))
    file = cert_file_of(directory, CA_NAME)
    if json_output:
        print_json({"cluster_id": cluster_id, "ca_file": str(file)})
    else:
        print_line(f"the authority of cluster {cluster_id} is in {file}")


@certs.command()
def issue(
    role: Annotated[str, typer.Argument(metavar="ROLE", help=f"{', '.join((*NodeRole, CLIENT))}.")],
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The node id; of a client, its role in Pulsar."),
    ],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="DNS name or IP address that clients use; once for each."),
    ] = None,
    directory: Directory = Path("certs"),
    days: Days = CERTIFICATE_DAYS,
    replace: Replace = False,
    json_output: JsonFlag = False,
) -> None:
    """Issue a certificate: NAME.cert.pem and NAME.key.pem.

    A node's certificate is for its role alone: that of a shard node makes no cluster manager.
    """
    _tell_issued(
        [_told(lambda: _issued(directory, role, name, hosts or [], days, replace))], json_output
    )


@certs.command()
def renew(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which ones. Default: those that end soon."),
    ] = None,
    within_days: Annotated[
        int, typer.Option("--within-days", min=0, help="Soon: within so many days.")
    ] = RENEWED_DAYS_BEFORE,
    directory: Directory = Path("certs"),
    days: Days = CERTIFICATE_DAYS,
    json_output: JsonFlag = False,
) -> None:
    """Replace certificates by ones that say the same, with new keys and a later end.

    Processes take the new files without a restart, with the next connection.
    """

    def renewed() -> list[IssuedFiles]:
        authority = Authority.load(directory)
        wanted = names or _ending(directory, datetime.now(UTC) + timedelta(days=within_days))
        return [authority.renew(name, days=days) for name in wanted]

    _tell_issued(_told(renewed), json_output)


@certs.command()
def provision(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="ROLE/NAME[=HOST,...]...", help="The nodes and operators of the cluster."
        ),
    ],
    cluster_id: Annotated[
        str, typer.Option("--cluster-id", help="The cluster; of the authority, once it is made.")
    ] = "local",
    directory: Directory = Path("certs"),
    deliver_to: Annotated[
        Path | None,
        typer.Option(
            "--deliver-to",
            help="Copy ca.crt, tls.crt and tls.key of each into the directory NAME in here.",
        ),
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Make what a whole cluster needs, and renew what ends soon. What is good stays as it is.

    An authority is made in the directory unless one is there. Run it again at any time.
    """
    _tell_issued(
        _told(lambda: provisioned(directory, cluster_id, wanted, deliver_to)),
        json_output,
        none="all certificates are good",
    )


@certs.command("list")
def list_certificates(directory: Directory = Path("certs"), json_output: JsonFlag = False) -> None:
    """Show the certificates of a directory, and when they end."""

    def rows() -> list[tuple[str, str, str]]:
        found = []
        for name in _names_in(directory):
            certificate = load_certificate(cert_file_of(directory, name))
            identity = identity_of(uris_of(certificate))
            whose = str(identity) if identity else certificate.subject.rfc4514_string()
            found.append((name, whose, certificate.not_valid_after_utc.isoformat()))
        return found

    listed = _told(rows)
    if json_output:
        print_json([{"name": n, "whose": w, "ends_at": e} for n, w, e in listed])
    else:
        print_table("certificates", ("name", "whose", "ends at"), listed)


def _issued(
    directory: Path, role: str, name: str, hosts: Iterable[str], days: int, replace: bool
) -> IssuedFiles:
    if role not in (*NodeRole, CLIENT):
        raise RefusesToStart(f"there is no role {role!r}, only {', '.join((*NodeRole, CLIENT))}")
    if not is_name(name):
        raise RefusesToStart(f"{name!r} is not a name of letters, digits, '.', '_' and '-'")
    authority = Authority.load(directory)
    if role == CLIENT:
        request = CertificateRequest(name, None, node_hosts(tuple(hosts)))
    else:
        request = authority.request_for(NodeRole(role), name, tuple(hosts))
    return authority.issue(name, dataclasses.replace(request, days=days), replace=replace)


def _names_in(directory: Path) -> list[str]:
    return sorted(file.name.removesuffix(".cert.pem") for file in directory.glob("*.cert.pem"))


def _ending(directory: Path, before: datetime) -> list[str]:
    return [
        name
        for name in _names_in(directory)
        if name != CA_NAME
        and load_certificate(cert_file_of(directory, name)).not_valid_after_utc <= before
    ]


def _tell_issued(
    issued: list[IssuedFiles], json_output: bool, *, none: str = "no certificate ends soon"
) -> None:
    if json_output:
        print_json(
            [
                {
                    "cert_file": str(one.cert_file),
                    "key_file": str(one.key_file),
                    "ends_at": one.ends_at.isoformat(),
                }
                for one in issued
            ]
        )
        return
    for one in issued:
        print_line(f"{one.cert_file} and {one.key_file}, until {one.ends_at:%Y-%m-%d}")
    if not issued:
        print_line(none)


def _told(work: Callable[[], T]) -> T:
    """Carry out ``work``; an error ends the program with its sentence and exit code."""
    try:
        return work()
    except MetadataError as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
