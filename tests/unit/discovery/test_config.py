"""Flags and environment of a discovery process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.adapters.workers.arguments import worker_arguments
from discovery.config import WORKER_VARIABLE, WorkerRole, fairness_flags, parse_config
from discovery.domain.fairness import DEFAULT_FAIRNESS, Fairness
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.pulsar import DISCOVERY_WORKERS_MAX
from nextgen.kernel.limits.write import WRITES_WAITING_MAX
from nextgen.runtime.settings import Address

REQUIRED = [
    *("--node-id", "discovery-1", "--cluster-id", "c", "--cluster-managers", "a:1,b:2"),
    *("--listen", "127.0.0.1:7080", "--http-listen", "127.0.0.1:7081"),
]


def test_a_discovery_node_speaks_pulsar_only_if_configured():
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
        (["--pulsar-listen", "0.0.0.0:6650"], "set --pulsar-advertise"),
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


def test_only_its_parent_process_makes_a_process_a_worker():
    assert parse_config(REQUIRED, {}).worker is None
    assert parse_config(REQUIRED, {WORKER_VARIABLE: "2:7"}).worker == WorkerRole(2, 7)
    with pytest.raises(RefusesToStart, match="not for people"):
        parse_config(REQUIRED, {WORKER_VARIABLE: "yes"})


FAIRNESS_FLAGS = fairness_flags(DEFAULT_FAIRNESS)


def test_without_settings_tenants_and_connections_have_the_default_bounds():
    assert parse_config(REQUIRED, {}).fairness == DEFAULT_FAIRNESS


def test_what_tenants_and_connections_may_have_is_set_by_flags_and_environment():
    flags = ["--tenant-lookups-waiting-max", "500", "--turn-us", "2000", "--writes-sent-max", "64"]
    environment = {"NEXTGEN_CONNECTION_CALLS_MAX": "8", "NEXTGEN_WRITES_SENT_MAX": "1"}

    fairness = parse_config([*REQUIRED, *flags], environment).fairness

    assert fairness == Fairness(
        tenant_lookups_waiting_max=500, turn_us=2_000, writes_sent_max=64, connection_calls_max=8
    )


def test_a_worker_has_the_bounds_of_the_process_that_starts_it():
    fairness = Fairness(*range(8_192, 8_192 + len(FAIRNESS_FLAGS)))
    fairness = replace(fairness, turn_commands_max=7)
    flags = [part for flag in fairness_flags(fairness).items() for part in flag]
    config = parse_config([*REQUIRED, *flags, "--pulsar-listen", "127.0.0.1:6650"], {})

    flags = [part.format(number=2) for part in worker_arguments(config, pulsar_port=6650)]
    worker = parse_config(flags, {})

    assert worker.fairness == config.fairness == fairness


def test_the_settings_of_topic_lists_reach_the_workers() -> None:
    flags = ["--pulsar-listen", "127.0.0.1:6650", "--subscriptionPatternMaxLength", "7"]
    config = parse_config([*REQUIRED, *flags], {})

    worker = parse_config([part.format(number=2) for part in worker_arguments(config, 6650)], {})

    assert worker.topic_lists == config.topic_lists
    assert worker.topic_lists.pattern_characters_max == 7


@pytest.mark.parametrize("flag", FAIRNESS_FLAGS)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1000000000"])
def test_a_bound_that_cannot_be_is_refused(flag: str, value: str):
    with pytest.raises(RefusesToStart, match=f"{flag} is '{value}', it must be"):
        parse_config([*REQUIRED, flag, value], {})


@pytest.mark.parametrize("excess", [0, 1])
def test_no_tenant_may_be_allowed_more_than_all_together(excess: int):
    flags = ["--tenant-writes-waiting-max", str(WRITES_WAITING_MAX + excess)]
    if excess:
        with pytest.raises(RefusesToStart, match="--tenant-writes-waiting-max"):
            parse_config([*REQUIRED, *flags], {})
    else:
        parse_config([*REQUIRED, *flags], {})


def test_clients_without_a_certificate_get_a_port_only_where_there_is_tls():
    files = [f"--tls-{part}-file=/{part}" for part in ("cert", "key", "ca")]
    listen = "--client-listen=127.0.0.1:7082"

    assert parse_config(REQUIRED, {}).client_listen is None
    config = parse_config([*REQUIRED, *files, listen], {})
    assert config.client_listen == Address("127.0.0.1", 7082)
    with pytest.raises(RefusesToStart, match="--client-listen is given without --tls-cert-file"):
        parse_config([*REQUIRED, listen], {})
    with pytest.raises(RefusesToStart, match="clients with one use the port of --listen"):
        parse_config([*REQUIRED, *files, listen, "--tls-require-client-cert=true"], {})
