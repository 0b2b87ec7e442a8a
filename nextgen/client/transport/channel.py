"""gRPC channels between our processes: loopback or a private network, one per connection.

A channel of this module belongs to one connection and is thrown away with it, so gRPC's own
reconnect backoff, made for the open internet, never delays a failover.
"""

from __future__ import annotations

import grpc
import grpc.aio

from nextgen.client.transport.proving_channel import ProvingChannel
from nextgen.client.transport.token_channel import TokenChannel
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import (
    CHANNEL_KEEPALIVE_MS,
    CONNECT_TIMEOUT_MS,
    GRPC_MESSAGE_BYTES_MAX,
)
from nextgen.runtime.security.client_token import token_in_use
from nextgen.runtime.security.cluster_proof import credentials_in_use
from nextgen.runtime.security.node_identity import NodeRole, role_name
from nextgen.runtime.security.process_tls import NodeTls, tls_in_use
from nextgen.tasks.timeouts import timeout

_RECONNECT_BACKOFF_MS_MAX = 200

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_BACKOFF_MS_MAX),
    # A machine that lost power sends no RST: see also ``open_channel``.
    ("grpc.keepalive_timeout_ms", CHANNEL_KEEPALIVE_MS),
    # The option that this gRPC version obeys; the one above is for other versions.
    ("grpc.http2.ping_timeout_ms", CHANNEL_KEEPALIVE_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # Otherwise channels to one address share a connection, and its backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # A cluster's processes are reached directly, whatever proxy the environment names.
    ("grpc.enable_http_proxy", 0),
)


def open_channel(
    endpoint: str,
    serves: NodeRole | None = None,
    *,
    keepalive_ms: int = CHANNEL_KEEPALIVE_MS,
) -> grpc.aio.Channel:
    """Return a channel to ``endpoint`` (host:port). It connects with its first call.

    With TLS the process there MUST have a certificate of the cluster for the role ``serves``, by
    default for any role of a process, or nothing is sent to it. If this process is a client with
    no certificate of the cluster's, the one there MUST be for the host's name.

    While nothing arrives and there is a call, it is pinged every ``keepalive_ms``.

    Without TLS, if this process has credentials, calls between processes carry proof of them; a
    stream carries it once ``wait_connected`` has returned.
    """
    options = (*CHANNEL_OPTIONS, ("grpc.keepalive_time_ms", keepalive_ms))
    tls = tls_in_use()
    if isinstance(tls, NodeTls):
        return with_token(_secure_channel(endpoint, serves, tls, options))
    if tls is not None:
        return with_token(
            grpc.aio.secure_channel(endpoint, tls.channel_credentials(), options=options)
        )
    return with_proofs(with_token(grpc.aio.insecure_channel(endpoint, options=options)))


def with_token(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    """Return ``channel``; if this process has a token, clients' calls carry it.

    Raises:
        RefusesToStart: The token cannot be read.
    """
    return TokenChannel(channel, token_in_use) if token_in_use() else channel


def _secure_channel(
    endpoint: str,
    serves: NodeRole | None,
    tls: NodeTls,
    options: tuple[tuple[str, int], ...],
) -> grpc.aio.Channel:
    material = tls.store.material
    credentials = grpc.ssl_channel_credentials(material.ca, material.key, material.cert)
    # Who it is counts, not where it is: addresses change, and a node at the right one may lie.
    name = role_name(tls.identity.cluster_id, serves)
    return grpc.aio.secure_channel(
        endpoint, credentials, options=(*options, ("grpc.ssl_target_name_override", name))
    )


def with_proofs(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    """Return ``channel``; as ``open_channel`` says, with proofs if there are credentials."""
    credentials = credentials_in_use()
    return channel if credentials is None else ProvingChannel(channel, credentials)


async def close_channel(channel: grpc.aio.Channel) -> None:
    """Close ``channel`` at once; calls on it end."""
    await channel.close(None)


async def wait_connected(
    channel: grpc.aio.Channel, endpoint: str, *, timeout_ms: int = CONNECT_TIMEOUT_MS
) -> None:
    """Connect ``channel``; return once it is connected and has the server's challenge.

    Raises:
        Unavailable: Refused, or not connected within ``timeout_ms``. Nothing was sent.
    """
    try:
        async with timeout(timeout_ms / 1_000):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise Unavailable(f"{endpoint} refuses connections")
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
            if isinstance(channel, ProvingChannel):
                await channel.learn_challenge()
    except grpc.aio.AioRpcError as error:
        raise Unavailable(f"{endpoint} gives no challenge: {error.details()}") from error
    except TimeoutError as error:
        raise Unavailable(f"{endpoint} did not accept a connection in {timeout_ms} ms") from error
