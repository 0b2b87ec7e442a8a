"""The identity in a certificate of the cluster's authority: which cluster, which role, whose name.

It stands in the certificate twice: as a URI that says everything, checked by whoever is connected
to, and as a DNS name of role and cluster, which is what a TLS library lets a caller require of the
server BEFORE anything is sent.

    pulsar-nextgen://CLUSTER/shard-node/shard-node-1      shard-node.CLUSTER.pulsar-nextgen
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

SCHEME = "pulsar-nextgen"

ANY_NODE = "node"
"""The first part of the DNS name that every process of a cluster has, whatever its role."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class NodeRole(StrEnum):
    """What the holder of a certificate is in its cluster."""

    CLUSTER_MANAGER = "cluster-manager"
    SHARD_NODE = "shard-node"
    DISCOVERY = "discovery"
    BROKER = "broker"
    OPERATOR = "operator"
    """A person or a program with every right that the cluster's own processes have."""


SERVING_ROLES = frozenset(NodeRole) - {NodeRole.OPERATOR}
"""The roles of processes that others connect to."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The holder of a certificate. ``name`` is the node id of a process."""

    cluster_id: str
    role: NodeRole
    name: str

    def __str__(self) -> str:
        return f"{self.role} {self.name} of {self.cluster_id}"

    @property
    def uri(self) -> str:
        """Return the URI that a certificate has as an alternative name."""
        return f"{SCHEME}://{self.cluster_id}/{self.role}/{self.name}"

    @property
    def dns_names(self) -> tuple[str, ...]:
        """Return the DNS names that a certificate has beside those of its host."""
        if self.role not in SERVING_ROLES:
            return ()
        return role_name(self.cluster_id, self.role), role_name(self.cluster_id, None)


def role_name(cluster_id: str, role: NodeRole | None) -> str:
    """Return the DNS name in the certificates of a role; None: of every process of the cluster."""
    return f"{role or ANY_NODE}.{cluster_id}.{SCHEME}"


def parse_identity(uri: str) -> NodeIdentity | None:
    """Return the identity in a URI, None if it is none of ours."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    role, _, name = parts.path.removeprefix("/").partition("/")
    if (
        parts.scheme != SCHEME
        or role not in tuple(NodeRole)
        or not _NAME.fullmatch(parts.netloc)
        or not _NAME.fullmatch(name)
        or parts.query
        or parts.fragment
    ):
        return None
    return NodeIdentity(parts.netloc, NodeRole(role), name)


def identity_of(uris: Iterable[str]) -> NodeIdentity | None:
    """Return the identity among the URIs of a certificate; None if there is not exactly one."""
    found = [one for one in map(parse_identity, uris) if one is not None]
    return found[0] if len(found) == 1 else None


def is_name(text: str) -> bool:
    """Return whether ``text`` may be a cluster's or a node's name in an identity."""
    return bool(_NAME.fullmatch(text))
