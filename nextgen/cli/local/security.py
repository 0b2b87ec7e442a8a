"""What secures a local cluster: its secret or its certificates, both in the data directory."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from nextgen.cli.local.local_tokens import TOKENS, make_tokens
from nextgen.cli.local.plan import CERTS_FOLDER, ClusterPlan
from nextgen.runtime.security.authority import (
    CA_NAME,
    Authority,
    cert_file_of,
    key_file_of,
    node_hosts,
)
from nextgen.runtime.security.client_token import use_token_file
from nextgen.runtime.security.cluster_proof import credentials_of_environment, use_credentials
from nextgen.runtime.security.cluster_secret import SECRET_FILE, make_cluster_secret
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import (
    NodeTls,
    role_of_kind,
    tls_of_environment,
    tls_of_files,
    use_tls,
)
from nextgen.runtime.tls_settings import TlsFiles

OPERATOR = "operator"
"""The name of the operator of a local cluster, and of the files with their certificate."""


def make_security(plan: ClusterPlan, data_dir: Path, now: datetime | None = None) -> None:
    """Make the cluster's secret, or certificates that are missing or about to end; and tokens.

    Raises:
        RefusesToStart: A file cannot be written.
    """
    if plan.authentication == TOKENS:
        make_tokens(data_dir)
    if not plan.tls:
        make_cluster_secret(data_dir / SECRET_FILE)
        return
    at = now or datetime.now(UTC)
    directory = data_dir / CERTS_FOLDER
    if cert_file_of(directory, CA_NAME).exists():
        authority = Authority.load(directory)
    else:
        authority = Authority.make(directory, plan.cluster_id, now=at)
    hosts = node_hosts(("localhost", "127.0.0.1", "::1", _own_name()))
    for node in plan.nodes:
        role = role_of_kind(node.kind)
        authority.ensure(node.node_id, authority.request_for(role, node.node_id, hosts), now=at)
    authority.ensure(OPERATOR, authority.request_for(NodeRole.OPERATOR, OPERATOR), now=at)


def use_security(plan: ClusterPlan, data_dir: Path) -> None:
    """Use the local cluster's secret or the operator's certificate for calls from here on.

    Raises:
        RefusesToStart: A file is unusable.
    """
    use_credentials(plan.credentials(data_dir))
    use_token_file(plan.token_file(data_dir))
    use_tls(_operator_tls(plan, data_dir))


def use_environments_security() -> None:
    """Use the secret or the certificate that the environment names, if any.

    Raises:
        RefusesToStart: A file is unusable, or half of what is needed is named.
    """
    use_credentials(credentials_of_environment(os.environ))
    use_tls(tls_of_environment(os.environ))


def authority_file(data_dir: Path) -> Path:
    """Return the certificate by which clients of a local cluster with TLS know it."""
    return cert_file_of(data_dir / CERTS_FOLDER, CA_NAME)


def _operator_tls(plan: ClusterPlan, data_dir: Path) -> NodeTls | None:
    directory = data_dir / CERTS_FOLDER
    cert = cert_file_of(directory, OPERATOR)
    if not plan.tls or not cert.exists():
        return None
    return tls_of_files(
        TlsFiles(cert, key_file_of(directory, OPERATOR), cert_file_of(directory, CA_NAME))
    )


def _own_name() -> str:
    name = socket.gethostname()
    is_dns = name.isascii() and all(
        1 <= len(label) <= 63 and label.replace("-", "").isalnum() for label in name.split(".")
    )
    return name if is_dns else "localhost"
