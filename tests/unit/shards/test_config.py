"""Flags, environment, and one sentence per mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.scalable import SCALABLE_CONSUMER_GRACE_MS
from nextgen.kernel.limits.write import (
    WRITES_IN_FLIGHT_MAX,
    WRITES_WAITING_MAX,
    WRITES_WAITING_PER_TENANT_MAX,
)
from nextgen.runtime.settings import Address
from shards.config import parse_config

FLAGS = {
    "--node-id": "shard-node-1",
    "--cluster-id": "prod",
    "--listen": "0.0.0.0:7000",
    "--advertise": "10.0.0.1:7000",
    "--raft-listen": "0.0.0.0:7001",
    "--raft-advertise": "10.0.0.1:7001",
    "--http-listen": "127.0.0.1:7002",
    "--cluster-managers": "a:1, [::1]:2",
    "--data-dir": "/data",
    "--insecure": "true",
}


def arguments(**changed: str) -> list[str]:
    flags = FLAGS | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return [part for pair in flags.items() for part in pair]


def test_flags_are_read() -> None:
    config = parse_config(arguments(), {})

    assert config.node_id == "shard-node-1"
    assert config.advertise == Address("10.0.0.1", 7000)
    assert config.cluster_managers == (Address("a", 1), Address("::1", 2))
    assert str(config.cluster_managers[1]) == "[::1]:2"
    assert config.data_directory == Path("/data")


def test_the_environment_fills_in_and_a_flag_wins() -> None:
    environment = {"NEXTGEN_DATA_DIR": "/other", "NEXTGEN_ADVERTISE": "from.environment:1"}
    without = [part for pair in FLAGS.items() if pair[0] != "--advertise" for part in pair]

    config = parse_config(without, environment)

    assert config.advertise == Address("from.environment", 1)
    assert config.data_directory == Path("/data")


def test_what_is_advertised_defaults_to_what_is_listened_on() -> None:
    flags = FLAGS | {"--listen": "host:1", "--raft-listen": "host:2"}
    without = [part for pair in flags.items() if "advertise" not in pair[0] for part in pair]

    config = parse_config(without, {})

    assert config.advertise == config.listen
    assert config.raft_advertise == config.raft_listen


def test_what_is_missing_is_named_with_its_variable() -> None:
    with pytest.raises(RefusesToStart) as refusal:
        parse_config([], {})

    sentences = str(refusal.value).split("; ")
    assert "--node-id (or NEXTGEN_NODE_ID) is missing" in sentences
    assert len(sentences) == 7


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("node_id", "a b", "--node-id 'a b' is not a name"),
        ("cluster_id", "a/b", "--cluster-id 'a/b' is not a name"),
        ("listen", "nowhere", "--listen has 'nowhere'"),
        ("listen", "host:70000", "--listen has 'host:70000'"),
        ("cluster_managers", " , ", "--cluster-managers has no address"),
        ("advertise", "host:0", "--advertise has 'host:0'"),
        ("raft_advertise", "host:0", "--raft-advertise has 'host:0'"),
    ],
)
def test_each_mistake_gets_its_sentence(flag: str, value: str, sentence: str) -> None:
    with pytest.raises(RefusesToStart, match=sentence.replace(".", r"\.")):
        parse_config(arguments(**{flag: value}), {})


def test_several_mistakes_are_reported_at_once() -> None:
    with pytest.raises(RefusesToStart) as refusal:
        parse_config(arguments(node_id="a b", cluster_managers=","), {})

    assert len(str(refusal.value).split("; ")) == 2


def test_the_bounds_of_writes_can_be_set() -> None:
    default = parse_config(arguments(), {})
    config = parse_config(
        arguments(writes_in_flight_max="64"), {"NEXTGEN_TENANT_WRITES_WAITING_MAX": "16"}
    )

    assert (default.writes_in_flight_max, default.tenant_writes_waiting_max) == (
        WRITES_IN_FLIGHT_MAX,
        WRITES_WAITING_PER_TENANT_MAX,
    )
    assert (config.writes_in_flight_max, config.tenant_writes_waiting_max) == (64, 16)


def test_the_grace_of_consumers_can_be_set() -> None:
    default = parse_config(arguments(), {})
    config = parse_config(arguments(scalable_consumer_grace_ms="500"), {})

    assert default.scalable_consumer_grace_ms == SCALABLE_CONSUMER_GRACE_MS
    assert config.scalable_consumer_grace_ms == 500
    with pytest.raises(RefusesToStart, match="--scalable-consumer-grace-ms is"):
        parse_config(arguments(scalable_consumer_grace_ms="0"), {})


@pytest.mark.parametrize("flag", ["writes_in_flight_max", "tenant_writes_waiting_max"])
@pytest.mark.parametrize("value", ["0", "some", str(WRITES_WAITING_MAX + 1)])
def test_bounds_of_writes_that_cannot_be_are_refused(flag: str, value: str) -> None:
    with pytest.raises(RefusesToStart, match=f"--{flag.replace('_', '-')} is"):
        parse_config(arguments(**{flag: value}), {})
