"""The command line of a worker: a process that shares the Pulsar port of a discovery node."""

from __future__ import annotations

from discovery.config import DiscoveryConfig, fairness_flags
from nextgen.pulsar.topic_lists.settings import flags_of_topic_lists
from nextgen.runtime.settings import Address, TraceSettings, flags_of_tls


def worker_arguments(
    config: DiscoveryConfig, pulsar_port: int, pulsar_tls_port: int = 0
) -> list[str]:
    """Return the flags of a worker: what it needs, and nothing that it would listen on alone."""
    flags = {
        "--node-id": f"{config.node_id}.w{{number}}",
        "--cluster-id": config.cluster_id,
        "--listen": str(config.advertise),
        "--advertise": str(config.advertise),
        "--http-listen": str(config.advertise),
        "--cluster-managers": ",".join(str(address) for address in config.cluster_managers),
        **_shared("--pulsar", config.pulsar_listen, config.pulsar_advertise, pulsar_port),
        **_shared(
            "--pulsar-tls",
            config.pulsar_tls_listen,
            config.pulsar_tls_advertise,
            pulsar_tls_port,
        ),
        "--workers": "1",
        **fairness_flags(config.fairness),
        **flags_of_topic_lists(config.topic_lists),
        "--cluster-secret-file": str(config.cluster_secret_file or ""),
        "--cluster-secret-required": str(config.cluster_secret_required).lower(),
        **flags_of_tls(config.tls),
        **config.authentication.flags(),
        **config.authorization.flags(),
        **_trace_flags(config.tracing),
    }
    return [part for flag in flags.items() for part in flag]


def _shared(
    prefix: str, listen: Address | None, advertise: Address | None, port: int
) -> dict[str, str]:
    if listen is None:
        return {}
    shared = {f"{prefix}-listen": str(Address(listen.host, port))}
    return shared | ({} if advertise is None else {f"{prefix}-advertise": str(advertise)})


def _trace_flags(settings: TraceSettings) -> dict[str, str]:
    """Return a worker's flags: where the spans go, into another file than this process'."""
    flags = {"--otlp-endpoint": settings.otlp_endpoint, "--trace-ratio": str(settings.ratio)}
    if settings.file is not None:
        own = "" if settings.file.is_dir() else ".w{number}"
        flags["--trace-file"] = f"{settings.file}{own}"
    return flags
