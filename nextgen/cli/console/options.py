"""Options that many commands share, and their meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from nextgen.cli.local.cluster_state import read_state
from nextgen.cli.local.plan import ClusterPlan, load_plan
from nextgen.cli.local.security import use_environments_security, use_security
from nextgen.kernel.errors import RefusesToStart
from nextgen.pulsar.service_urls import TLS_SCHEME

DATA_DIR_VARIABLE = "NEXTGEN_DATA_DIR"
TARGET_VARIABLE = "NEXTGEN_TARGET"
SERVICE_URL_VARIABLE = "NEXTGEN_SERVICE_URL"
PULSAR_SCHEME = "pulsar://"

Wide = Annotated[
    bool, typer.Option("--wide", help="Show all columns, however narrow the terminal is.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar=DATA_DIR_VARIABLE,
        help="Where the local cluster lives. Default: ./.nextgen if it exists, "
        "else nextgen/ in $XDG_STATE_HOME (~/.local/state).",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        envvar=TARGET_VARIABLE,
        help="host:port of discovery nodes (gRPC), by commas. Default: those of the local cluster.",
        show_default=False,
    ),
]
ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service-url",
        envvar=SERVICE_URL_VARIABLE,
        help="Where Pulsar clients go: pulsar://host:port (or pulsar+ssl://) of discovery "
        "nodes, by commas. "
        "Default: that of the local cluster.",
        show_default=False,
    ),
]


def data_dir_of(given: Path | None) -> Path:
    """Return the data directory of the option, else the default; it need not exist."""
    # Commands without the option go by the variable, too.
    named = given or os.environ.get(DATA_DIR_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    here = Path.cwd() / ".nextgen"
    if here.is_dir():
        return here
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state_home).expanduser().absolute() / "nextgen"


_called: list[str] = []
"""The discovery nodes that this process calls."""


def called_addresses() -> tuple[str, ...]:
    """Return the discovery nodes that this command calls; none if it calls none, or not yet."""
    return tuple(_called)


def endpoints_of(target: str | None, data_dir: Path | None) -> tuple[str, ...]:
    """Return the discovery nodes to call; later calls to their cluster carry proofs.

    The secret of the local cluster is in its data directory, also if its address is given. For any
    other cluster it is in the file that ``--cluster-secret-file`` or the environment names.

    Raises:
        RefusesToStart: No address is given and no local cluster runs, or the secret is unusable.
    """
    addresses = _addresses(target)
    _called[:] = addresses
    if not addresses:
        _called[:] = _running_plan(data_dir).discovery_endpoints
        return called_addresses()
    directory = data_dir_of(data_dir)
    plan = _plan_or_none(directory)
    if plan is not None and not set(addresses).isdisjoint(plan.discovery_endpoints):
        use_security(plan, directory)
    else:
        use_environments_security()
    return addresses


def service_url_of(given: str | None, data_dir: Path | None) -> str:
    """Return the service URL for Pulsar clients.

    Raises:
        RefusesToStart: None is given and no local cluster runs, or the given one is malformed.
    """
    text = given or ""
    scheme = TLS_SCHEME if text.startswith(TLS_SCHEME) else PULSAR_SCHEME
    addresses = _addresses(text.removeprefix(scheme).rstrip("/"), "--service-url")
    if addresses:
        plan = _plan_or_none(data_dir_of(data_dir))
        is_local = plan is not None and plan.serves_clients_at(addresses)
        if plan is not None and is_local:
            use_security(plan, data_dir_of(data_dir))
        else:
            use_environments_security()
        return scheme + ",".join(addresses)
    return _running_plan(data_dir).service_url


def local_plan_or_none() -> ClusterPlan | None:
    """Return the plan of the default data directory, whether its cluster runs or not."""
    return _plan_or_none(data_dir_of(None))


def _addresses(given: str | None, flag: str = "--target") -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in (given or "").split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal():
            raise RefusesToStart(f"{flag} names {address!r}, it must be host:port")
    return addresses


def _plan_or_none(directory: Path) -> ClusterPlan | None:
    try:
        return load_plan(directory)
    except RefusesToStart:
        return None  # Another cluster is meant, and this one is damaged.


def _running_plan(data_dir: Path | None) -> ClusterPlan:
    directory = data_dir_of(data_dir)
    plan = load_plan(directory)
    if plan is None:
        raise RefusesToStart(
            f"there is no local cluster in {directory}: start one with 'nextgen up', "
            "or name a discovery node with --target"
        )
    if read_state(directory) is None:
        raise RefusesToStart(
            f"the local cluster in {directory} does not run: start it with 'nextgen up', "
            "or name a discovery node with --target"
        )
    use_security(plan, directory)
    return plan
