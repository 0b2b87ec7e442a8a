"""Ports for processes that a test starts itself; clusters of a plan choose their own."""

from __future__ import annotations

import contextlib
import itertools
import random

from nextgen.cli.local.port_range import PORTS_PER_RANGE, own_ports
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.servers.ports_check import assert_port_free

_turns = itertools.count(random.randrange(PORTS_PER_RANGE))


def free_ports(count: int) -> list[int]:
    """Return ports that are free; the next call returns others.

    Not from the kernel: an outgoing connection would take the port of a process that was killed,
    or that has not bound it yet.
    """
    found: list[int] = []
    while len(found) < count:
        ports = own_ports()
        port = ports[next(_turns) % len(ports)]
        with contextlib.suppress(RefusesToStart):
            assert_port_free("127.0.0.1", port, "a test")
            found.append(port)
    return found
