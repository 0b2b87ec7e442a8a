"""How the files that a process may have open are shared between its ports.

A connection is a file to the system. A port that could use all of them up would leave none to the
others, nor to journals and ledgers.
"""

from __future__ import annotations

import resource

from nextgen.kernel.limits.inbound import (
    GRPC_CONNECTIONS_MAX,
    GRPC_FILES_SHARE,
    HTTP_CONNECTIONS_MAX,
    HTTP_FILES_SHARE,
    OPEN_FILES_RESERVED,
)
from nextgen.kernel.limits.pulsar import OPEN_FILES_MAX

_CONNECTIONS_MIN = 16
"""However few files there are: a process that takes no connections is of no use."""


def open_files_limit() -> int:
    """Return how many files this process may have open at the moment."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def http_connections_max(files: int | None = None) -> int:
    """Return how many connections over HTTP are taken where so many files may be open."""
    files = open_files_limit() if files is None else files
    return max(_CONNECTIONS_MIN, min(HTTP_CONNECTIONS_MAX, files // HTTP_FILES_SHARE))


def grpc_connections_max(files: int | None = None) -> int:
    """Return how many connections over gRPC are taken where so many files may be open."""
    files = open_files_limit() if files is None else files
    return max(_CONNECTIONS_MIN, min(GRPC_CONNECTIONS_MAX, files // GRPC_FILES_SHARE))


def pulsar_connections_max(wanted: int, files: int | None = None) -> int:
    """Return how many of ``wanted`` Pulsar connections are taken where so many files may be open.

    They never take what HTTP, gRPC and the process' own files are left.
    """
    files = open_files_limit() if files is None else files
    others = http_connections_max(files) + grpc_connections_max(files)
    left = files - others - OPEN_FILES_RESERVED
    return min(wanted, max(_CONNECTIONS_MIN, left))
