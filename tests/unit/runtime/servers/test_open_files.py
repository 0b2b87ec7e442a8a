from __future__ import annotations

import resource

import pytest

from nextgen.kernel.limits.cluster import JOIN_STREAMS_MAX
from nextgen.kernel.limits.inbound import (
    GRPC_CONNECTIONS_MAX,
    GRPC_FILES_SHARE,
    HTTP_CONNECTIONS_MAX,
    HTTP_FILES_SHARE,
    LEDGER_FILES_SHARE,
    OPEN_FILES_RESERVED,
    OPEN_FILES_RESERVED_SHARE,
)
from nextgen.kernel.limits.pulsar import (
    LEDGER_OPEN_FILES_MAX,
    OPEN_FILES_MAX,
    PULSAR_CONNECTIONS_MAX,
)
from nextgen.runtime.servers.open_files import (
    grpc_connections_max,
    http_connections_max,
    ledger_files_max,
    open_files_limit,
    pulsar_connections_max,
    reserved_files,
)


def test_the_limit_is_that_of_the_process() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert open_files_limit() == (OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft)


def test_http_files_share_is_what_http_takes_until_it_has_http_connections_max() -> None:
    enough = HTTP_CONNECTIONS_MAX * HTTP_FILES_SHARE

    assert http_connections_max(enough) == HTTP_CONNECTIONS_MAX
    assert http_connections_max(enough - 1) == HTTP_CONNECTIONS_MAX - 1
    assert http_connections_max(10 * enough) == HTTP_CONNECTIONS_MAX


def test_grpc_files_share_is_what_grpc_takes_until_it_has_grpc_connections_max() -> None:
    enough = GRPC_CONNECTIONS_MAX * GRPC_FILES_SHARE

    assert grpc_connections_max(enough) == GRPC_CONNECTIONS_MAX
    assert grpc_connections_max(enough - 1) == GRPC_CONNECTIONS_MAX - 1
    assert grpc_connections_max(10 * enough) == GRPC_CONNECTIONS_MAX


def test_with_the_files_of_a_server_every_node_and_broker_finds_a_connection() -> None:
    assert grpc_connections_max(65_536) >= JOIN_STREAMS_MAX


@pytest.mark.parametrize(
    ("files", "pulsar"),
    [(512, 288), (1_024, 576), (4_096, 2_688), (65_536, 50_000), (OPEN_FILES_MAX, 50_000)],
)
def test_pulsar_gets_most_files_and_the_reserve_is_left_when_all_ports_are_full(
    files: int, pulsar: int
) -> None:
    others = http_connections_max(files) + grpc_connections_max(files)

    assert pulsar_connections_max(PULSAR_CONNECTIONS_MAX, files) == pulsar
    assert 2 * pulsar > files or pulsar == PULSAR_CONNECTIONS_MAX
    assert others + pulsar + reserved_files(files) <= files
    assert 2 * ledger_files_max(files) <= reserved_files(files)


def test_open_files_reserved_share_is_kept_until_it_is_open_files_reserved() -> None:
    enough = OPEN_FILES_RESERVED * OPEN_FILES_RESERVED_SHARE

    assert reserved_files(enough) == OPEN_FILES_RESERVED
    assert reserved_files(enough - 1) == OPEN_FILES_RESERVED - 1
    assert reserved_files(10 * enough) == OPEN_FILES_RESERVED


def test_ledger_files_share_is_what_ledgers_keep_until_it_is_ledger_open_files_max() -> None:
    enough = LEDGER_OPEN_FILES_MAX * LEDGER_FILES_SHARE

    assert ledger_files_max(enough) == LEDGER_OPEN_FILES_MAX
    assert ledger_files_max(enough - 1) == LEDGER_OPEN_FILES_MAX - 1
    assert ledger_files_max(10 * enough) == LEDGER_OPEN_FILES_MAX
    assert 2 * LEDGER_OPEN_FILES_MAX < OPEN_FILES_RESERVED


def test_a_port_takes_what_it_is_to_take_where_files_are_plenty() -> None:
    assert pulsar_connections_max(PULSAR_CONNECTIONS_MAX, OPEN_FILES_MAX) == PULSAR_CONNECTIONS_MAX
    assert pulsar_connections_max(3, OPEN_FILES_MAX) == 3


def test_some_connections_are_taken_however_few_files_there_are() -> None:
    assert http_connections_max(64) > 0
    assert grpc_connections_max(64) > 0
    assert pulsar_connections_max(PULSAR_CONNECTIONS_MAX, 64) > 0
