"""Checks that nodes declared lost for good do not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode

CONNECT_MS_MAX = 2_000
"""Milliseconds for one connection. A machine that is gone does not refuse it, it is silent."""


def refuse_if_any_answers(lost: Mapping[str, Iterable[tuple[str, int]]]) -> None:
    """Return if nothing listens at any address of the lost nodes. Blocks.

    Raises:
        Refused: Some process does. An operator has to find out whether it is the lost node or
            another process at its address.
    """
    for node_id, addresses in sorted(lost.items()):
        for host, port in addresses:
            try:
                socket.create_connection((host, port), CONNECT_MS_MAX / 1000).close()
            except OSError:
                continue
            raise Refused(
                RejectionCode.NOT_ALLOWED,
                f"{node_id} is declared lost and answers at {host}:{port}: a majority may "
                f"return, so nothing was changed",
            )
