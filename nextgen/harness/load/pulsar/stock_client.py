"""The stock Pulsar client, unchanged as its registry has it."""

from __future__ import annotations

import os
from typing import Any

from nextgen.cli.console.install_hint import install_hint
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.client_token import token_in_use

OPERATION_TIMEOUT_S = 30
"""The client's own default, explicit because recovery times depend on it."""


def load_pulsar() -> Any:
    """Return the client's module; this module can be imported without it.

    Raises:
        RefusesToStart: It is not installed.
    """
    try:
        import pulsar
    except ImportError as error:
        raise RefusesToStart(
            f"this needs the stock Pulsar client for Python ({error}): {install_hint('client')}"
        ) from error
    return pulsar


def open_client(
    service_url: str,
    *,
    log_path: str = os.devnull,
    listener_threads: int = 1,
    logs_connections: bool = False,
) -> Any:
    """Return a client. It connects when it is first used.

    Its warnings go to ``log_path`` instead of stdout, which has the job's result;
    ``logs_connections``: so does what it connects to.
    """
    pulsar = load_pulsar()
    token = token_in_use()
    return pulsar.Client(
        service_url,
        authentication=pulsar.AuthenticationToken(token) if token else None,
        operation_timeout_seconds=OPERATION_TIMEOUT_S,
        message_listener_threads=listener_threads,
        logger=pulsar.FileLogger(
            pulsar.LoggerLevel.Info if logs_connections else pulsar.LoggerLevel.Warn, log_path
        ),
    )
