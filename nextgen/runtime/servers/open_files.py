"""Divides the files that a process may have open among its ports and its ledgers.

Each connection is an open file. A port that could use them all would leave none to the other ports,
nor to journals and ledgers. Pulsar clients get everything that the others do not take:

    files    HTTP    gRPC    of its own    Pulsar
    1,024      64     128           256       576
    65,536  1,024   8,192           640    50,000
"""

from __future__ import annotations

import resource

from nextgen.kernel.limits.inbound import (
    GRPC_CONNECTIONS_MAX,
    GRPC_FILES_SHARE,
    HTTP_CONNECTIONS_MAX,
    HTTP_FILES_SHARE,
    LEDGER_FILES_SHARE,
    OPEN_FILES_RESERVED,
    OPEN_FILES_RESERVED_SHARE,
)
from nextgen.kernel.limits.pulsar import LEDGER_OPEN_FILES_MAX, OPEN_FILES_MAX

_CONNECTIONS_MIN = 16
"""The least connections, however few files there are: a process without any is of no use."""


def open_files_limit() -> int:
    """Return how many files this process may have open at the moment."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def http_connections_max(files: int | None = None) -> int:
    """Return the bound on HTTP connections in a process that may have ``files`` open."""
    files = open_files_limit() if files is None else files
    return max(_CONNECTIONS_MIN, min(HTTP_CONNECTIONS_MAX, files // HTTP_FILES_SHARE))


def grpc_connections_max(files: int | None = None) -> int:
    """Return the bound on gRPC connections in a process that may have ``files`` open."""
    files = open_files_limit() if files is None else files
    return max(_CONNECTIONS_MIN, min(GRPC_CONNECTIONS_MAX, files // GRPC_FILES_SHARE))


def ledger_files_max(files: int | None = None) -> int:
    """Return how many files ledgers keep open for appending, and as many again for reading."""
    files = open_files_limit() if files is None else files
    return max(1, min(LEDGER_OPEN_FILES_MAX, files // LEDGER_FILES_SHARE))


def reserved_files(files: int) -> int:
    """Return how many of ``files`` are left to the process itself when all ports are full."""
    return min(OPEN_FILES_RESERVED, files // OPEN_FILES_RESERVED_SHARE)


def pulsar_connections_max(wanted: int, files: int | None = None) -> int:
    """Return the bound on Pulsar connections, ``wanted`` at most, if ``files`` may be open.

    It leaves room for HTTP, gRPC and the process's own files.
    """
    files = open_files_limit() if files is None else files
    others = http_connections_max(files) + grpc_connections_max(files)
    left = files - others - reserved_files(files)
    return min(wanted, max(_CONNECTIONS_MIN, left))
