"""Flags and environment of a broker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.config import BrokerConfig, parse_config
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.cluster import ADDRESS_BYTES_MAX, BROKER_CAPACITY_UNITS_MAX
from nextgen.kernel.limits.placement import BROKER_DRAIN_MS_MAX
from nextgen.pulsar.topic_lists.settings import TopicListSettings
from nextgen.runtime.settings import Address

REQUIRED = [
    *("--node-id", "broker-1", "--cluster-id", "c", "--cluster-managers", "a:1,b:2"),
    *("--listen", "127.0.0.1:7080", "--http-listen", "127.0.0.1:7081"),
]


def test_what_is_not_given_has_a_default():
    assert parse_config(REQUIRED, {}) == BrokerConfig(
        node_id="broker-1",
        cluster_id="c",
        listen=Address("127.0.0.1", 7080),
        advertise=Address("127.0.0.1", 7080),
        http_listen=Address("127.0.0.1", 7081),
        cluster_managers=(Address("a", 1), Address("b", 2)),
        capacity_units=50_000,
        zone="",
        data_dir=None,
        pulsar_listen=None,
        pulsar_advertise=None,
        ledger_dir=None,
        retention_time_ms=3_600_000,
        retention_bytes=2**30,
        backlog_bytes_max=10 * 2**30,
    )


def test_a_flag_wins_over_the_environment_and_that_over_the_default():
    environment = {"NEXTGEN_ZONE": "east", "NEXTGEN_CAPACITY_UNITS": "7", "NEXTGEN_DATA_DIR": "/d"}

    config = parse_config([*REQUIRED, "--zone", "west"], environment)

    assert (config.zone, config.capacity_units, config.data_dir) == ("west", 7, Path("/d"))


def test_topic_lists_have_the_settings_of_pulsar_under_its_names():
    flags = ["--enableBrokerSideTopicFiltering", "false", "--subscriptionPatternMaxLength", "7"]
    environment = {"NEXTGEN_ENABLE_BROKER_TOPIC_LIST_WATCHER": "false"}

    config = parse_config([*REQUIRED, *flags], environment)

    assert config.topic_lists == TopicListSettings(False, False, 7)


def test_a_broker_that_speaks_pulsar_is_reached_where_it_listens():
    config = parse_config(
        [*REQUIRED, "--pulsar-listen", "127.0.0.1:6653", "--ledger-dir", "/ledgers"], {}
    )

    assert config.pulsar_listen == config.pulsar_advertise == Address("127.0.0.1", 6653)
    assert config.ledger_dir == Path("/ledgers")


def test_a_broker_that_listens_everywhere_says_where_clients_reach_it():
    everywhere = [*REQUIRED, "--pulsar-listen", "0.0.0.0:6653", "--ledger-dir", "/ledgers"]
    everywhere += ["--insecure", "true"]

    with pytest.raises(RefusesToStart, match="--pulsar-advertise"):
        parse_config(everywhere, {})
    config = parse_config([*everywhere, "--pulsar-advertise", "127.0.0.1:7653"], {})

    assert config.pulsar_advertise == Address("127.0.0.1", 7653)


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (["--pulsar-listen", "127.0.0.1:6653"], "--ledger-dir is missing"),
        (["--ledger-dir", "/ledgers"], "--pulsar-listen is missing"),
        (["--pulsar-advertise", "127.0.0.1:6653"], "without --pulsar-listen"),
        (["--pulsar-listen", "6653", "--ledger-dir", "/ledgers"], "--pulsar-listen has '6653'"),
    ],
)
def test_half_of_what_speaking_pulsar_needs_is_refused(flags: list[str], missing: str):
    with pytest.raises(RefusesToStart, match=missing):
        parse_config([*REQUIRED, *flags], {})


@pytest.mark.parametrize("units", ["0", str(BROKER_CAPACITY_UNITS_MAX + 1), "many", "-1"])
def test_a_capacity_out_of_bounds_is_refused(units: str):
    with pytest.raises(RefusesToStart, match="--capacity-units"):
        parse_config([*REQUIRED, f"--capacity-units={units}"], {})


@pytest.mark.parametrize("units", [1, BROKER_CAPACITY_UNITS_MAX])
def test_a_capacity_at_its_bounds_is_accepted(units: int):
    config = parse_config([*REQUIRED, "--capacity-units", str(units)], {})

    assert config.capacity_units == units


@pytest.mark.parametrize("milliseconds", [0, BROKER_DRAIN_MS_MAX])
def test_the_time_to_leave_has_bounds(milliseconds: int):
    config = parse_config([*REQUIRED, "--drain-ms-max", str(milliseconds)], {})

    assert config.drain_ms_max == milliseconds
    with pytest.raises(RefusesToStart, match="--drain-ms-max"):
        parse_config([*REQUIRED, "--drain-ms-max", str(BROKER_DRAIN_MS_MAX + 1)], {})


def test_how_much_is_kept_can_be_set():
    flags = ["--retention-time-ms", "0", "--retention-bytes", "5", "--backlog-bytes-max", "7"]

    config = parse_config([*REQUIRED, *flags], {})

    assert (config.retention_time_ms, config.retention_bytes) == (0, 5)
    assert config.backlog_bytes_max == 7
    for flag in ("--retention-time-ms", "--retention-bytes", "--backlog-bytes-max"):
        with pytest.raises(RefusesToStart, match=flag):
            parse_config([*REQUIRED, flag, "-1"], {})


# Advertised listeners ---------------------------------------------------------------------------

SERVING = [*REQUIRED, "--pulsar-listen", "0.0.0.0:6650", "--ledger-dir", "/l", "--insecure", "true"]
TWO = "inside:pulsar://10.0.0.1:6650,outside:pulsar://b.example:7650"


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ((), "pulsar://10.0.0.1:6650"),
        (("--internal-listener-name", "outside"), "pulsar://b.example:7650"),
        (("--internalListenerName", "inside"), "pulsar://10.0.0.1:6650"),
    ],
)
@pytest.mark.parametrize("flag", ["--advertised-listeners", "--advertisedListeners"])
def test_clients_that_name_no_listener_get_the_internal_one(flag: str, more, first: str):
    config = parse_config([*SERVING, flag, TWO, *more], {})

    assert config.advertised_urls == (
        f"{first};inside=pulsar://10.0.0.1:6650;outside=pulsar://b.example:7650"
    )
    assert config.pulsar_advertise is None


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        (("--advertised-listeners", "inside"), "'inside' is not NAME:"),
        (("--advertised-listeners", TWO, "--internal-listener-name", "up"), "up is not in"),
        (("--advertised-listeners", TWO, "--pulsar-advertise", "b:1"), "not given together"),
        (("--advertised-listeners", "a:pulsar+ssl://b:1"), "for --pulsar-tls-listen"),
        (("--internal-listener-name", "inside"), "given without --advertised-listeners"),
    ],
)
def test_listeners_that_make_no_sense_are_mistakes(more, mistake: str):
    with pytest.raises(RefusesToStart, match=mistake):
        parse_config([*SERVING, *more], {})


def test_address_bytes_max_bounds_listeners_too():
    def listeners(size: int) -> str:
        rest = ADDRESS_BYTES_MAX - len("pulsar://a:1;a=pulsar://a:1;b=pulsar://:1")
        return f"a:pulsar://a:1,b:pulsar://{'h' * (rest + size)}:1"

    taken = parse_config([*SERVING, "--advertised-listeners", listeners(0)], {}).advertised_urls
    assert len(taken) == ADDRESS_BYTES_MAX
    with pytest.raises(RefusesToStart, match=f"takes {ADDRESS_BYTES_MAX + 1} bytes"):
        parse_config([*SERVING, "--advertised-listeners", listeners(1)], {})
