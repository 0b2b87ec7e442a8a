"""The settings of a process: flags, and behind them the environment.

Each flag ``--some-name`` may be given as ``NEXTGEN_SOME_NAME`` instead; the flag wins. All mistakes
are collected and reported together, one sentence each.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.write import WRITES_WAITING_PER_TENANT_MAX
from nextgen.runtime.tls_settings import TlsFiles, TlsSettings

PORT_MAX = 65_535

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen or connect."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_NOWHERE = Address("", 0)


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting. Without a default it must be given."""

    name: str
    description: str
    default: str | None = None
    aliases: tuple[str, ...] = ()
    """Other names of the same flag, such as Pulsar's."""

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return _variable(self.name)

    def given_by(self, environment: Mapping[str, str]) -> str | None:
        """Return its value in the environment, under any of its names."""
        values = (environment.get(_variable(name)) for name in (self.name, *self.aliases))
        return next((value for value in values if value), None)


def _variable(name: str) -> str:
    return "NEXTGEN_" + name.removeprefix("--").replace("-", "_").upper()


TLS_FLAGS = (
    Flag(
        "--tls-cert-file",
        "certificate of this process, PEM; default: no TLS",
        "",
        ("--tlsCertificateFilePath",),
    ),
    Flag("--tls-key-file", "its key, PEM, without a password", "", ("--tlsKeyFilePath",)),
    Flag(
        "--tls-ca-file",
        "authorities whose certificates nodes and clients may have, PEM",
        "",
        ("--tlsTrustCertsFilePath",),
    ),
    Flag("--client-tls-cert-file", "another certificate for clients; default: the same", ""),
    Flag("--client-tls-key-file", "its key", ""),
    Flag("--client-tls-ca-file", "authorities whose certificates clients may have", ""),
    Flag(
        "--tls-require-client-cert",
        "true: clients too need a certificate, of an authority in the file",
        "false",
        ("--tlsRequireTrustedClientCertOnConnect",),
    ),
    Flag("--insecure", "true: listen beyond this machine without TLS or permissions", "false"),
)
"""Flags of every process: its certificates, and what it may do without."""

NODE_FLAGS = (
    Flag("--node-id", "name of this process, unique in the cluster and for ever the same"),
    Flag("--cluster-id", "name of the cluster; whatever belongs to another is refused"),
    Flag("--listen", "host:port of gRPC"),
    Flag("--advertise", "host:port where others reach gRPC; default: the value of --listen", ""),
    Flag("--http-listen", "host:port of metrics and probes"),
    Flag("--cluster-secret-file", "file with the cluster secret; default: there is none", ""),
    Flag("--cluster-secret-required", "false: take peers without proof of it too", "true"),
    *TLS_FLAGS,
)
"""Flags of every process."""

RAFT_FLAGS = (
    Flag("--raft-listen", "host:port of the Raft mesh"),
    Flag("--raft-advertise", "host:port where peers reach it; default: as --raft-listen", ""),
    Flag("--data-dir", "directory that only this process uses"),
)
"""Flags of every process with Raft groups."""

PULSAR_FLAGS = (
    Flag("--pulsar-listen", "host:port of the Pulsar protocol; default: it is not spoken", ""),
    Flag("--pulsar-advertise", "host:port where clients reach it; default: --pulsar-listen", ""),
    Flag("--pulsar-tls-listen", "host:port of pulsar+ssl; default: it is not spoken", ""),
    Flag("--pulsar-tls-advertise", "where clients reach it; default: --pulsar-tls-listen", ""),
)
"""Flags of every process that Pulsar clients connect to."""

TENANT_WRITES_FLAG = Flag(
    "--tenant-writes-waiting-max",
    "writes of one tenant that wait at a shard before more are refused",
    str(WRITES_WAITING_PER_TENANT_MAX),
)
"""Of discovery, for creates that it has not sent, and of shard nodes."""

OTLP_ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's own name for ``--otlp-endpoint``; ours wins."""

TRACE_FLAGS = (
    Flag("--otlp-endpoint", "host:port or URL of an OpenTelemetry collector (gRPC)", ""),
    Flag("--trace-file", "file for spans as JSON lines; in a directory each process has one", ""),
    Flag("--trace-ratio", "share of traces that begin here and are recorded, 0 to 1", "1"),
)
"""Trace flags of every process; without one of the first two nothing is recorded."""

MANAGERS_FLAG = Flag("--cluster-managers", "host:port,... of the cluster manager's replicas")


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The destinations of a process's spans; none by default."""

    otlp_endpoint: str = ""
    file: Path | None = None
    ratio: float = 1.0
    """Recorded part of the traces that begin here; for others the caller's decision holds."""

    @property
    def is_on(self) -> bool:
        return bool(self.otlp_endpoint) or self.file is not None


NO_TRACES = TraceSettings()


class Given:
    """The given values. Read the wanted ones, then call ``check``.

    An invalid value reads as an empty one and is noted as a mistake.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.mistakes: list[str] = []

    def text(self, name: str) -> str:
        return self._values[name]

    def identifier(self, name: str) -> str:
        """Return a name that is safe in a path and in a log line."""
        value = self._values[name]
        if not _IDENTIFIER.fullmatch(value):
            self.mistakes.append(
                f"{name} {value!r} is not a name of letters, digits, '.', '_' and '-'"
            )
        return value

    def address(self, name: str) -> Address:
        return self.parse_address(name, self._values[name])

    def addresses(self, name: str) -> tuple[Address, ...]:
        """Return the addresses of a comma-separated list; at least one."""
        parts = [part.strip() for part in self._values[name].split(",")]
        found = tuple(self.parse_address(name, part) for part in parts if part)
        if not found:
            self.mistakes.append(f"{name} has no address")
        return found

    def advertised(self, name: str, listen_name: str) -> Address:
        """Return the address for others to connect to; by default, the one it listens on."""
        if self._values[name]:
            return self.address(name)
        listen = self.parse_address(listen_name, self._values[listen_name], note_mistakes=False)
        if listen.host in _WILDCARDS:
            self.mistakes.append(
                f"{listen_name} is {listen}, to which no process can connect: "
                f"set {name} to the address for others"
            )
        return listen

    def optional_address(self, name: str) -> Address | None:
        return self.address(name) if self._values[name] else None

    def optional_advertised(self, name: str, listen_name: str) -> Address | None:
        """Return as ``advertised`` does; None if this process does not listen for that."""
        if self._values[listen_name]:
            return self.advertised(name, listen_name)
        if self._values[name]:
            self.mistakes.append(f"{name} is given without {listen_name}")
        return None

    def number(self, name: str, *, least: int, most: int) -> int:
        value = self._values[name]
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            self.mistakes.append(f"{name} is {value!r}, it must be {least} to {most}")
            return least
        return int(value)

    def truth(self, name: str) -> bool:
        """Return whether it is ``true``; the only other value is ``false``."""
        value = self._values[name]
        if value not in ("true", "false"):
            self.mistakes.append(f"{name} is {value!r}, it must be true or false")
        return value == "true"

    def path(self, name: str) -> Path:
        return Path(self._values[name])

    def optional_path(self, name: str) -> Path | None:
        return self.path(name) if self._values[name] else None

    def parse_address(self, name: str, text: str, *, note_mistakes: bool = True) -> Address:
        """Return the address in ``host:port``, a part of the value of ``name``."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_port = port.isascii() and port.isdigit() and 1 <= int(port) <= PORT_MAX
        if not colon or not host or not is_port:
            if note_mistakes:
                self.mistakes.append(
                    f"{name} has {text!r}, it must be host:port, port 1 to {PORT_MAX}"
                )
            return _NOWHERE
        return Address(host, int(port))

    def tracing(self, environment: Mapping[str, str]) -> TraceSettings:
        """Return the settings of ``TRACE_FLAGS``, with OpenTelemetry's variable as the default."""
        text = self._values["--trace-ratio"]
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            self.mistakes.append(f"--trace-ratio is {text!r}, it must be 0 to 1")
            ratio = 0.0
        file = self._values["--trace-file"]
        endpoint = self._values["--otlp-endpoint"] or environment.get(OTLP_ENDPOINT_VARIABLE, "")
        return TraceSettings(endpoint, Path(file) if file else None, ratio)

    def tls(self, *more_listens: str) -> TlsSettings:
        """Return the settings of ``TLS_FLAGS``.

        Notes a mistake if any of ``--listen``, ``--http-listen`` and ``more_listens`` is beyond
        this machine without TLS, unless ``--insecure`` is true.
        """
        nodes = self._tls_files("--tls")
        clients = self._tls_files("--client-tls") or nodes
        required = self.truth("--tls-require-client-cert")
        if required and clients is None:
            self.mistakes.append("--tls-require-client-cert is true without --tls-cert-file")
        if self._values.get("--pulsar-tls-listen") and clients is None:
            self.mistakes.append("--pulsar-tls-listen is given without --tls-cert-file")
        if not self.truth("--insecure"):
            self._check_exposure(nodes, clients, more_listens)
        return TlsSettings(nodes, clients, required)

    def _tls_files(self, prefix: str) -> TlsFiles | None:
        names = [f"{prefix}-{part}-file" for part in ("cert", "key", "ca")]
        given = [self._values[name] for name in names]
        if not any(given):
            return None
        if not all(given):
            missing = ", ".join(name for name in names if not self._values[name])
            self.mistakes.append(f"a certificate, its key and an authority: {missing} is missing")
            return None
        cert, key, ca = map(Path, given)
        return TlsFiles(cert, key, ca)

    def _check_exposure(
        self, nodes: TlsFiles | None, clients: TlsFiles | None, more: Sequence[str]
    ) -> None:
        secured = {"--listen": nodes, "--raft-listen": nodes, "--http-listen": clients}
        for name in ("--listen", "--http-listen", *more):
            address = self.parse_address(name, self._values[name], note_mistakes=False)
            if secured.get(name) is None and address.host and not is_loopback(address.host):
                self.mistakes.append(
                    f"{name} {address} is beyond this machine and would be served without TLS: "
                    "give certificates with --tls-cert-file, or --insecure true"
                )

    def check(self) -> None:
        """Return if there was no mistake.

        Raises:
            RefusesToStart: One sentence per mistake.
        """
        if self.mistakes:
            raise RefusesToStart("; ".join(self.mistakes))


def flags_of_tls(settings: TlsSettings) -> dict[str, str]:
    """Return the flags that give a worker the same TLS.

    It listens where the process that started it does, so it is not asked about that again.
    """
    flags = {"--insecure": "true"}
    for prefix, files in (("--tls", settings.nodes), ("--client-tls", settings.clients)):
        if files is not None:
            names = (f"{prefix}-{part}-file" for part in ("cert", "key", "ca"))
            flags |= dict(zip(names, map(str, files.paths), strict=True))
    return flags | {"--tls-require-client-cert": str(settings.are_clients_certified).lower()}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings(
    program: str,
    description: str,
    flags: Sequence[Flag],
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> Given:
    """Return the values of flags and environment.

    Raises:
        RefusesToStart: A setting is missing; one sentence per setting.
        SystemExit: An unknown flag, or ``--help``.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog="Every flag may come from the environment: --node-id is NEXTGEN_NODE_ID.",
        allow_abbrev=False,
    )
    for flag in flags:
        default = flag.given_by(environment) or flag.default
        names = (flag.name, *flag.aliases)
        parser.add_argument(*names, dest=flag.name, default=default, help=flag.description)
    values: dict[str, str | None] = vars(parser.parse_args(list(arguments)))
    missing = [flag for flag in flags if values[flag.name] in (None, "") and flag.default is None]
    if missing:
        raise RefusesToStart(
            "; ".join(f"{flag.name} (or {flag.variable}) is missing" for flag in missing)
        )
    return Given({name: value or "" for name, value in values.items()})
