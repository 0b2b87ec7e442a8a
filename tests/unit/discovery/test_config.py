"""Flags and environment of a discovery process."""

from __future__ import annotations

import pytest

from discovery.config import WORKER_VARIABLE, WorkerRole, parse_config
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.pulsar import DISCOVERY_WORKERS_MAX
from nextgen.runtime.settings import Address

REQUIRED = [
    *("--node-id", "discovery-1", "--cluster-id", "c", "--cluster-managers", "a:1,b:2"),
    *("--listen", "127.0.0.1:7080", "--http-listen", "127.0.0.1:7081"),
]


def test_without_being_told_to_a_discovery_node_does_not_speak_pulsar():
    config = parse_config(REQUIRED, {})

    assert (config.pulsar_listen, config.pulsar_advertise) == (None, None)


def test_clients_reach_a_discovery_node_where_it_listens_unless_told_otherwise():
    listen = {"NEXTGEN_PULSAR_LISTEN": "127.0.0.1:6650"}

    same = parse_config(REQUIRED, listen)
    other = parse_config([*REQUIRED, "--pulsar-advertise", "lookup.example:6650"], listen)

    assert same.pulsar_advertise == same.pulsar_listen == Address("127.0.0.1", 6650)
    assert other.pulsar_advertise == Address("lookup.example", 6650)


@pytest.mark.parametrize(
    ("flags", "mistake"),
    [
        (["--pulsar-listen", "0.0.0.0:6650"], "say with --pulsar-advertise"),
        (["--pulsar-advertise", "127.0.0.1:6650"], "without --pulsar-listen"),
        (["--pulsar-listen", "127.0.0.1:0"], "--pulsar-listen has '127.0.0.1:0'"),
    ],
)
def test_a_pulsar_address_that_nobody_can_use_is_refused(flags: list[str], mistake: str):
    with pytest.raises(RefusesToStart, match=mistake):
        parse_config([*REQUIRED, *flags], {})


@pytest.mark.parametrize("workers", [1, DISCOVERY_WORKERS_MAX])
def test_so_many_processes_may_share_a_port(workers: int):
    flags = ["--pulsar-listen", "127.0.0.1:6650", "--workers", str(workers)]

    assert parse_config([*REQUIRED, *flags], {}).workers == workers


@pytest.mark.parametrize("workers", ["0", str(DISCOVERY_WORKERS_MAX + 1), "many"])
def test_another_number_of_processes_is_refused(workers: str):
    flags = ["--pulsar-listen", "127.0.0.1:6650", "--workers", workers]

    with pytest.raises(RefusesToStart, match="--workers is"):
        parse_config([*REQUIRED, *flags], {})


def test_workers_need_a_port_to_share():
    with pytest.raises(RefusesToStart, match="without --pulsar-listen to share"):
        parse_config([*REQUIRED, "--workers", "2"], {})


def test_a_worker_is_told_by_the_process_that_starts_it_only():
    assert parse_config(REQUIRED, {}).worker is None
    assert parse_config(REQUIRED, {WORKER_VARIABLE: "2:7"}).worker == WorkerRole(2, 7)
    with pytest.raises(RefusesToStart, match="not for people"):
        parse_config(REQUIRED, {WORKER_VARIABLE: "yes"})
