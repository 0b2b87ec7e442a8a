"""Flags and environment of a broker process."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.config import BrokerConfig, parse_config
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits import BROKER_CAPACITY_UNITS_MAX
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
    )


def test_a_flag_wins_over_the_environment_and_that_over_the_default():
    environment = {"NEXTGEN_ZONE": "east", "NEXTGEN_CAPACITY_UNITS": "7", "NEXTGEN_DATA_DIR": "/d"}

    config = parse_config([*REQUIRED, "--zone", "west"], environment)

    assert (config.zone, config.capacity_units, config.data_dir) == ("west", 7, Path("/d"))


@pytest.mark.parametrize("units", ["0", str(BROKER_CAPACITY_UNITS_MAX + 1), "many", "-1"])
def test_a_capacity_out_of_bounds_is_refused(units: str):
    with pytest.raises(RefusesToStart, match="--capacity-units"):
        parse_config([*REQUIRED, f"--capacity-units={units}"], {})


@pytest.mark.parametrize("units", [1, BROKER_CAPACITY_UNITS_MAX])
def test_a_capacity_at_its_bounds_is_accepted(units: int):
    config = parse_config([*REQUIRED, "--capacity-units", str(units)], {})

    assert config.capacity_units == units
