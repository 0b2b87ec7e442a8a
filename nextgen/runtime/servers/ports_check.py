"""Checks that a port is free before anything starts, so that the refusal is one clear sentence."""

from __future__ import annotations

import socket

from nextgen.kernel.errors import RefusesToStart


def assert_port_free(host: str, port: int, purpose: str) -> None:
    """Return if this process could listen on ``host`` and ``port``; 0 is always free.

    Another process may still take the port afterwards: the caller that listens must handle that
    failure too. ``purpose`` completes "needed for", for example "the HTTP probes".

    Raises:
        RefusesToStart: It is taken, or not on this machine; the message names it.
    """
    if port == 0:
        return
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As our servers do: lingering connections of an earlier run do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise port_refusal(host, port, purpose, error) from error


def port_refusal(host: str, port: int, purpose: str, error: Exception) -> RefusesToStart:
    """Return the refusal for a port that could not be listened on."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return RefusesToStart(
        f"cannot listen on {host}:{port}, needed for {purpose} ({why.lower()}): "
        "stop what listens there or choose another port"
    )
