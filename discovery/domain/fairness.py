"""Limits of one tenant or connection in a discovery process, beyond which others have priority."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.limits.discovery import (
    DISCOVERY_CONNECTION_CALLS_MAX,
    DISCOVERY_TURN_BYTES_MAX,
    DISCOVERY_TURN_COMMANDS_MAX,
    DISCOVERY_TURN_MS,
    LOOKUP_TENANT_NAMES_WAITING_MAX,
)
from nextgen.kernel.limits.write import WRITES_SENT_MAX, WRITES_WAITING_PER_TENANT_MAX


@dataclass(frozen=True, slots=True)
class Fairness:
    """The limits that an operator may set. The constants of the defaults have the reasons."""

    tenant_lookups_waiting_max: int = LOOKUP_TENANT_NAMES_WAITING_MAX
    """Names of one tenant that wait for shards; beyond it its lookups are refused."""

    tenant_writes_waiting_max: int = WRITES_WAITING_PER_TENANT_MAX
    """Creates of one tenant that wait to be sent to a shard; beyond it they are refused."""

    writes_sent_max: int = WRITES_SENT_MAX
    """Cost, in topics, of creates that are sent to a shard and not answered; beyond it they wait
    by tenant."""

    connection_calls_max: int = DISCOVERY_CONNECTION_CALLS_MAX
    """Calls in flight on one gRPC connection; beyond it they wait at the client."""

    turn_us: int = round(1_000 * DISCOVERY_TURN_MS)
    """Time of the event loop in one turn for all Pulsar connections with long reads together."""

    turn_bytes_max: int = DISCOVERY_TURN_BYTES_MAX
    """Bytes of one connection that are answered in a turn."""

    turn_commands_max: int = DISCOVERY_TURN_COMMANDS_MAX
    """Commands of one connection that are started in a turn and sent to shards."""


DEFAULT_FAIRNESS = Fairness()
