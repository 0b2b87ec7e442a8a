"""The plan of a local cluster: its processes, their ports, their flags.

A plan is made once, stored in the data directory, and used again at each later start: replicas
remember each other's ports.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from nextgen.cli.local.local_tokens import TOKEN_FILE, TOKENS, token_flags
from nextgen.cli.local.port_range import own_ports
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.input.json_fields import as_count, as_text, parse_json
from nextgen.kernel.limits.cluster import SHARDS_MAX
from nextgen.runtime.security.authority import CA_NAME, cert_file_of, key_file_of
from nextgen.runtime.security.cluster_proof import ClusterCredentials
from nextgen.runtime.security.cluster_secret import SECRET_FILE
from nextgen.runtime.servers.ports_check import assert_port_free
from nextgen.runtime.settings import PORT_MAX

HOST = "127.0.0.1"
PLAN_FILE = "plan.json"
PLAN_FORMAT = 2
CERTS_FOLDER = "certs"
"""The cluster's authority and certificates, below the data directory."""

LEDGERS_FOLDER = "ledgers"
"""The brokers' messages, below the data directory: one place for all of them."""

PORT_BASE_DEFAULT = 17_000
"""Below the range that Linux takes outgoing ports from, so a restarted node gets its port back."""

PORTS_PER_NODE = 4
FREE_BLOCK_ATTEMPTS = 200
_PORT_LAST = 65_535

MODULES = {
    "cluster-manager": "cluster_manager",
    "shard-node": "shards",
    "discovery": "discovery",
    "broker": "brokers",
}
KINDS = tuple(MODULES)
Part = TypeVar("Part", "ClusterSize", "NodePlan")


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Numbers of processes. The defaults are the smallest cluster that survives any one failure."""

    cluster_managers: int = 3
    shard_nodes: int = 3
    discovery: int = 2
    brokers: int = 3
    shards: int = 4
    capacity_units: int = 50_000

    @property
    def replication_factor(self) -> int:
        return min(3, self.shard_nodes)


MINIMAL = ClusterSize(1, 1, 1, 1, shards=1)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One process and its ports on ``host``."""

    node_id: str
    kind: str
    grpc_port: int
    raft_port: int
    http_port: int
    pulsar_port: int
    host: str = HOST

    @property
    def grpc(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def raft(self) -> str:
        return f"{self.host}:{self.raft_port}"

    @property
    def http(self) -> str:
        return f"{self.host}:{self.http_port}"

    @property
    def pulsar(self) -> str:
        """Where Pulsar clients connect; empty if this kind of process does not serve them."""
        return f"{self.host}:{self.pulsar_port}" if self.has_pulsar else ""

    @property
    def has_raft(self) -> bool:
        return self.kind in ("cluster-manager", "shard-node")

    @property
    def has_pulsar(self) -> bool:
        return self.kind in ("discovery", "broker")

    def purposes(self) -> list[tuple[int, str]]:
        """Return the ports that it listens on, each with its purpose."""
        ports = [(self.grpc_port, f"gRPC of {self.node_id}")]
        if self.has_raft:
            ports.append((self.raft_port, f"Raft of {self.node_id}"))
        ports.append((self.http_port, f"metrics and probes of {self.node_id}"))
        if self.has_pulsar:
            ports.append((self.pulsar_port, f"Pulsar clients of {self.node_id}"))
        return ports


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A whole local cluster."""

    cluster_id: str
    size: ClusterSize
    nodes: tuple[NodePlan, ...]
    tls: bool = False
    """Whether every port needs TLS; the Pulsar ports are then those of ``pulsar+ssl``."""
    authentication: str = ""
    """``TOKENS`` if clients have to prove their role; "" if they do not."""
    authorization: bool = True
    """Whether roles need permissions; only if clients prove them."""

    def of_kind(self, kind: str) -> list[NodePlan]:
        return [node for node in self.nodes if node.kind == kind]

    def node(self, node_id: str) -> NodePlan:
        """Return the node's plan; it must exist."""
        return next(node for node in self.nodes if node.node_id == node_id)

    @property
    def manager_endpoints(self) -> str:
        return ",".join(node.grpc for node in self.of_kind("cluster-manager"))

    @property
    def discovery_endpoints(self) -> tuple[str, ...]:
        return tuple(node.grpc for node in self.of_kind("discovery"))

    @property
    def service_url(self) -> str:
        """Return the service URL for Pulsar clients: all discovery nodes, tried in turn."""
        scheme = "pulsar+ssl://" if self.tls else "pulsar://"
        return scheme + ",".join(node.pulsar for node in self.of_kind("discovery"))

    def serves_clients_at(self, addresses: Iterable[str]) -> bool:
        """Return whether any of ``addresses`` (host:port) is a Pulsar port of a discovery node."""
        return not {node.pulsar for node in self.of_kind("discovery")}.isdisjoint(addresses)

    @property
    def web_scheme(self) -> str:
        """The scheme of the HTTP ports."""
        return "https" if self.tls else "http"

    def credentials(self, data_dir: Path) -> ClusterCredentials | None:
        """Return the operator's credentials for calls to processes; None before the first start.

        Raises:
            RefusesToStart: The file with the secret is unusable.
        """
        file = data_dir / SECRET_FILE
        return ClusterCredentials.load(self.cluster_id, file if file.exists() else None)

    def token_file(self, data_dir: Path) -> Path | None:
        """Return the file with the operator's token, None if clients need none."""
        return data_dir / TOKEN_FILE if self.authentication == TOKENS else None

    def arguments(self, node: NodePlan, data_dir: Path) -> list[str]:
        """Return the flags of the node's process."""
        flags = {
            "--node-id": node.node_id,
            "--cluster-id": self.cluster_id,
            "--listen": node.grpc,
            "--advertise": node.grpc,
            "--http-listen": node.http,
            **self._security_of(node, data_dir),
        }
        if node.has_raft:
            flags |= {"--raft-listen": node.raft, "--raft-advertise": node.raft}
            flags |= {"--data-dir": str(data_dir / node.node_id)}
        if node.has_pulsar:
            prefix = "--pulsar-tls" if self.tls else "--pulsar"
            flags |= {f"{prefix}-listen": node.pulsar, f"{prefix}-advertise": node.pulsar}
            if self.authentication == TOKENS:
                flags |= token_flags(data_dir, authorization=self.authorization)
        if node.kind == "cluster-manager":
            flags |= {
                "--peers": ",".join(
                    f"{peer.node_id}={peer.raft}={peer.grpc}"
                    for peer in self.of_kind("cluster-manager")
                ),
                "--initial-shard-nodes": str(self.size.shard_nodes),
                "--shards": str(self.size.shards),
                "--replication-factor": str(self.size.replication_factor),
            }
        else:
            flags |= {"--cluster-managers": self.manager_endpoints}
        if node.kind == "broker":
            flags |= {"--capacity-units": str(self.size.capacity_units)}
            flags |= {"--ledger-dir": str(data_dir / LEDGERS_FOLDER)}
        return [part for flag in flags.items() for part in flag]

    def _security_of(self, node: NodePlan, data_dir: Path) -> dict[str, str]:
        if not self.tls:
            return {"--cluster-secret-file": str(data_dir / SECRET_FILE)}
        directory = data_dir / CERTS_FOLDER
        return {
            "--tls-cert-file": str(cert_file_of(directory, node.node_id)),
            "--tls-key-file": str(key_file_of(directory, node.node_id)),
            "--tls-ca-file": str(cert_file_of(directory, CA_NAME)),
        }

    def with_node(self, kind: str, taken_names: Iterable[str] = ()) -> ClusterPlan:
        """Return the plan with one more process of a kind, on free ports behind the others.

        Its node id is one that neither the plan nor ``taken_names`` has: an id is for ever.

        Raises:
            RefusesToStart: There is no free block of ports left.
        """
        names = {*taken_names, *(node.node_id for node in self.nodes)}
        number = 1 + max((_number_of(name, kind) for name in names), default=0)
        first = max(node.grpc_port for node in self.nodes) + PORTS_PER_NODE
        for port in range(first, _PORT_LAST - PORTS_PER_NODE + 2, PORTS_PER_NODE):
            node = NodePlan(f"{kind}-{number}", kind, port, port + 1, port + 2, port + 3)
            grown = replace(self, nodes=(node,))
            try:
                grown.check_ports()
            except RefusesToStart:
                continue
            return replace(self, nodes=(*self.nodes, node))
        raise RefusesToStart(f"there is no free block of {PORTS_PER_NODE} ports from {first} on")

    def without_node(self, node_id: str) -> ClusterPlan:
        """Return the plan without one of its processes."""
        return replace(self, nodes=tuple(node for node in self.nodes if node.node_id != node_id))

    def check_ports(self) -> None:
        """Return if every port of the plan on this host is free.

        Raises:
            RefusesToStart: One is taken; the sentence names it and its purpose.
        """
        for node in self.nodes:
            for port, purpose in node.purposes() if node.host == HOST else ():
                assert_port_free(HOST, port, purpose)

    def save(self, data_dir: Path) -> None:
        """Store the plan in the data directory; create that if it does not exist.

        Raises:
            RefusesToStart: The directory cannot be created or written.
        """
        make_directory(data_dir)
        try:
            write_json(data_dir / PLAN_FILE, {"format": PLAN_FORMAT, **asdict(self)})
        except OSError as error:
            raise _unusable(data_dir, error) from error


def make_directory(directory: Path) -> None:
    """Create a directory of the cluster's data unless it is there.

    Raises:
        RefusesToStart: It cannot be created, or something else has its name.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error) from error


def _unusable(directory: Path, error: OSError) -> RefusesToStart:
    return RefusesToStart(
        f"the data directory {directory} cannot be used ({error.strerror or error}): "
        "name another one with --data-dir"
    )


def _number_of(name: str, kind: str) -> int:
    """Return n of ``<kind>-<n>``, 0 for any other name."""
    number = name.removeprefix(f"{kind}-")
    return int(number) if number != name and number.isdecimal() else 0


def write_json(path: Path, content: object) -> None:
    """Replace a file as a whole, so that a reader never sees half of it."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


def make_plan(
    size: ClusterSize, *, port_base: int = PORT_BASE_DEFAULT, cluster_id: str = "local"
) -> ClusterPlan:
    """Return a plan whose ports start at ``port_base``; discovery comes first.

    Raises:
        RefusesToStart: The numbers do not make a cluster.
    """
    counts = {
        "discovery": size.discovery,
        "cluster-manager": size.cluster_managers,
        "shard-node": size.shard_nodes,
        "broker": size.brokers,
    }
    if not 1 <= size.shards <= SHARDS_MAX:
        raise RefusesToStart(f"{size.shards} shards asked for, it must be 1 to {SHARDS_MAX}")
    names = [(f"{kind}-{n}", kind) for kind, count in counts.items() for n in range(1, count + 1)]
    if not 1 <= port_base <= 65_536 - len(names) * PORTS_PER_NODE:
        raise RefusesToStart(f"port base {port_base} leaves no room for {len(names)} processes")
    nodes = []
    for place, (node_id, kind) in enumerate(names):
        first = port_base + PORTS_PER_NODE * place
        nodes.append(NodePlan(node_id, kind, first, first + 1, first + 2, first + 3))
    return ClusterPlan(cluster_id, size, tuple(nodes))


def make_plan_on_free_ports(size: ClusterSize, *, cluster_id: str = "local") -> ClusterPlan:
    """Return a plan on a block of ports that is free at the moment.

    Other processes that call this choose other blocks, also if they do so at the same time.

    Raises:
        RefusesToStart: No free block was found.
    """
    # Not from the kernel: it would hand out ports that outgoing connections take at a restart.
    chooser = random.Random(os.urandom(8))
    ports = own_ports()
    last = ports.stop - PORTS_PER_NODE * len(make_plan(size).nodes)
    if last < ports.start:
        raise RefusesToStart(f"{len(ports)} ports are too few: name some with --port-base")
    for _ in range(FREE_BLOCK_ATTEMPTS):
        port_base = chooser.randint(ports.start, last)
        plan = make_plan(size, port_base=port_base, cluster_id=cluster_id)
        try:
            plan.check_ports()
        except RefusesToStart:
            continue
        return plan
    raise RefusesToStart(
        f"found no free block of ports in {FREE_BLOCK_ATTEMPTS} attempts between "
        f"{ports.start} and {ports.stop}: name one with --port-base"
    )


def load_plan(data_dir: Path) -> ClusterPlan | None:
    """Return the plan stored in a data directory, None if there is none.

    Raises:
        RefusesToStart: It is damaged or of a format that is not known here.
    """
    path = data_dir / PLAN_FILE
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if content["format"] != PLAN_FORMAT:
            raise RefusesToStart(
                f"{path} has format {content['format']}, this release knows format {PLAN_FORMAT} "
                "only: start the cluster with the release that made it, or name another --data-dir"
            )
        return ClusterPlan(
            as_text(content["cluster_id"]),
            _checked(ClusterSize(**content["size"])),
            tuple(_checked_node(NodePlan(**node)) for node in content["nodes"]),
            content.get("tls", False) is True,
            _checked_authentication(content.get("authentication", "")),
            content.get("authorization", True) is True,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusesToStart(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RefusesToStart(
            f"{path} is damaged ({error}): remove the data directory, or name another one"
        ) from error


def _checked(part: Part) -> Part:
    """Return a part of a plan after checking the types of its fields.

    Raises:
        ValueError: A number is malformed or negative. TypeError: A text has another type.
    """
    for field in fields(part):
        check = as_count if field.type == "int" else as_text
        check(getattr(part, field.name))
    return part


def _checked_authentication(value: object) -> str:
    if value not in ("", TOKENS):
        raise ValueError(f"clients prove their role by {value!r}, which is not known here")
    return as_text(value)


def _checked_node(node: NodePlan) -> NodePlan:
    if _checked(node).kind not in KINDS:
        raise ValueError(f"there are no processes of kind {node.kind!r}")
    for port, purpose in node.purposes():
        if not 1 <= port <= PORT_MAX:
            raise ValueError(f"{port} is no port: {purpose}")
    return node
