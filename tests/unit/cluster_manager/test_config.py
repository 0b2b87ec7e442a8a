"""Settings: flags, environment, and one sentence per mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_manager.config import ManagerConfig, Peer, parse_config
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.settings import Address

PEERS = "cm-1=127.0.0.1:101=127.0.0.1:201,cm-2=[::1]:102=[::1]:202"
FLAGS = {
    "--node-id": "cm-1",
    "--cluster-id": "local",
    "--listen": "127.0.0.1:201",
    "--raft-listen": "127.0.0.1:101",
    "--http-listen": "127.0.0.1:301",
    "--data-dir": "/data",
    "--peers": PEERS,
}


def _parse(environment: dict[str, str] | None = None, **changed: str | None) -> ManagerConfig:
    flags = {**FLAGS, **{f"--{key.replace('_', '-')}": value for key, value in changed.items()}}
    arguments = [part for pair in flags.items() if pair[1] is not None for part in pair]
    return parse_config([str(part) for part in arguments], environment or {})


def test_flags_make_a_configuration() -> None:
    config = _parse(advertise="manager:201", shards="8")

    assert config == ManagerConfig(
        node_id="cm-1",
        cluster_id="local",
        listen=Address("127.0.0.1", 201),
        advertise=Address("manager", 201),
        raft_listen=Address("127.0.0.1", 101),
        raft_advertise=Address("127.0.0.1", 101),
        http_listen=Address("127.0.0.1", 301),
        data_directory=Path("/data"),
        peers=(
            Peer("cm-1", Address("127.0.0.1", 101), Address("127.0.0.1", 201)),
            Peer("cm-2", Address("::1", 102), Address("::1", 202)),
        ),
        initial_shard_nodes=3,
        shards=8,
        replication_factor=3,
    )
    assert str(config.peers[1].grpc) == "[::1]:202"


def test_the_environment_fills_in_and_flags_win() -> None:
    environment = {"NEXTGEN_SHARDS": "9", "NEXTGEN_CLUSTER_ID": "other", "NEXTGEN_NODE_ID": "x"}

    config = _parse(environment, cluster_id=None)

    assert (config.shards, config.cluster_id, config.node_id) == (9, "other", "cm-1")


def test_everything_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(RefusesToStart, match=r"--node-id .*NEXTGEN_NODE_ID.*--peers"):
        parse_config([], {})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"node_id": "no space"}, "--node-id 'no space' is not a name"),
        ({"cluster_id": "../x"}, "--cluster-id '../x' is not a name"),
        ({"node_id": "cm-9"}, "--peers does not have this node, cm-9"),
        ({"peers": "cm-1=h:1"}, "not of the form node_id="),
        ({"peers": "cm-1=h:1=h:x"}, "it must be host:port"),
        ({"peers": "cm-1=h:1=h:2,cm-1=h:3=h:4"}, "a node id twice"),
        ({"peers": ","}, "0 replicas"),
        ({"peers": ",".join(f"cm-{n}=h:1=h:2" for n in range(8))}, "8 replicas"),
        ({"listen": "0.0.0.0:201"}, "no process can connect"),
        ({"listen": "nowhere"}, "--listen has 'nowhere'"),
        ({"listen": "h:65536"}, "--listen has 'h:65536'"),
        ({"shards": "0"}, "--shards is '0', it must be 1 to 4096"),
        ({"shards": "4097"}, "--shards is '4097'"),
        ({"shards": "many"}, "--shards is 'many'"),
        ({"replication_factor": "8", "initial_shard_nodes": "8"}, "--replication-factor is '8'"),
        ({"replication_factor": "3", "initial_shard_nodes": "2"}, "needs as many"),
    ],
)
def test_a_mistake_is_refused_with_a_sentence(changed: dict[str, str], sentence: str) -> None:
    with pytest.raises(RefusesToStart) as refusal:
        _parse(**changed)

    assert sentence in str(refusal.value)
