"""Links that are cut, and disks that are filled, for real. Needs root."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nextgen.harness.chaos.nodes.disks import MIB, MountRefused, mounted_below, small_disks
from nextgen.harness.chaos.nodes.network import Link, NodeNetwork
from nextgen.kernel.errors import Unavailable

ROOT = Path(__file__).parents[3]
PORT = 9_000
ANSWER_S_MAX = 20
"""For an answer that must come. Only a failing test waits that long."""
SILENCE_S = 0.5
"""For one that must not come: it is there in a millisecond if the link is whole."""
_SERVER = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "print('listening', flush=True)\n"
    "while True:\n"
    "    server.accept()[0].sendall(b'here')\n"
)
_CLIENT = (
    "import socket, sys\n"
    "address, within_s = (sys.argv[1], int(sys.argv[2])), float(sys.argv[3])\n"
    "print(socket.create_connection(address, within_s).recv(4).decode())\n"
)


class Nodes:
    """Three nodes, of which ``b`` answers."""

    def __init__(self, network: NodeNetwork) -> None:
        self.network = network
        self.server = subprocess.Popen(
            [*network.entering("b"), *self._python(_SERVER)], stdout=subprocess.PIPE, text=True
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == "listening\n"

    def hears(self, node_id: str, within_s: float = ANSWER_S_MAX) -> bool:
        """Return whether a node, or the host, gets an answer from ``b``."""
        entering = self.network.entering(node_id) if node_id != "host" else []
        ended = subprocess.run(
            [*entering, *self._python(_CLIENT), str(within_s)],
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout == "here\n"

    def close(self) -> None:
        self.server.kill()
        self.server.wait()
        if self.server.stdout is not None:
            self.server.stdout.close()

    def _python(self, script: str) -> list[str]:
        return [sys.executable, "-c", script, self.network.address("b"), str(PORT)]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    network = NodeNetwork(["a", "b", "c"])
    try:
        network.set_up()
    except Unavailable as error:
        pytest.skip(f"no networks: {error}")
    nodes = Nodes(network)
    yield nodes
    nodes.close()
    network.remove()


@pytest.mark.parametrize(
    "links", [[Link("b", "a")], [Link("a", "b")], [Link("a", "b"), Link("b", "a")]]
)
def test_a_cut_link_is_silent_and_all_others_are_whole(nodes, links):
    assert nodes.hears("a")

    nodes.network.cut(links)

    assert not nodes.hears("a", SILENCE_S)
    assert nodes.hears("c")
    assert nodes.hears("host")
    assert nodes.network.dropped() > 0

    nodes.network.mend(links)
    assert nodes.hears("a")


_TALK = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "client = server.accept()[0]\n"
    "client.sendall(client.recv(1))\n"
    "sys.stdin.readline()\n"
    "client.sendall(client.recv(1))\n"
)
_SPEAK = (
    "import socket, sys\n"
    "client = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
    "for _ in range(2):\n"
    "    client.sendall(b'x')\n"
    "    print(client.recv(1).decode(), flush=True)\n"
    "    sys.stdin.readline()\n"
)


def test_a_connection_that_stands_is_cut_and_goes_on_when_it_is_mended(nodes):
    """1. A connection from a to c is used. 2. What c hears of a is cut, and a sends. 3. It is
    mended: what was sent arrives, as TCP sends it again."""
    network = nodes.network
    place = network.address("c")
    with _talking([*network.entering("c"), sys.executable, "-c", _TALK, place]) as answering:
        port = answering.stdout.readline().strip()
        speaking = [*network.entering("a"), sys.executable, "-c", _SPEAK, place, port]
        with _talking(speaking) as asking:
            assert asking.stdout.readline() == "x\n"
            dropped = network.dropped(["c"])

            network.cut([Link("a", "c")])
            for process in (answering, asking):
                process.stdin.write("\n")
            assert select.select([asking.stdout], [], [], SILENCE_S)[0] == []
            assert network.dropped(["c"]) > dropped

            network.mend([Link("a", "c")])
            assert asking.stdout.readline() == "x\n"
            asking.stdin.write("\n")
            assert [process.wait(ANSWER_S_MAX) for process in (asking, answering)] == [0, 0]


@contextlib.contextmanager
def _talking(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes, killed at the end: it would wait for its peer when the test failed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        try:
            yield process
        finally:
            process.kill()


def test_healing_mends_everything_and_mending_what_is_whole_does_nothing(nodes):
    nodes.network.mend([Link("b", "a")])
    nodes.network.cut([Link("b", "a"), Link("c", "b")])

    nodes.network.heal()

    assert [nodes.hears(one) for one in ("a", "c", "host")] == [True, True, True]


def test_nothing_is_left_of_a_network_that_was_removed(nodes):
    nodes.close()
    nodes.network.remove()

    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    (name,) = [part for part in nodes.network.entering("a") if part.startswith("--net=")]
    stem = Path(name).name.removesuffix("1")
    assert stem not in namespaces.stdout
    assert stem.removesuffix("x") + ":" not in links.stdout


@pytest.mark.parametrize("leave_bytes", [0, 16_384])
def test_a_disk_is_filled_and_emptied_again(tmp_path, leave_bytes):
    try:
        with small_disks(tmp_path / "disk", size_mib=8) as (disk,):
            (disk.path / "data").write_bytes(bytes(MIB))
            disk.fill(leave_bytes)
            assert disk.free_bytes <= leave_bytes
            with pytest.raises(OSError, match="No space left"):
                (disk.path / "more").write_bytes(bytes(leave_bytes + 4_097))

            disk.free()
            disk.free()
            assert disk.free_bytes >= 6 * MIB
            assert mounted_below(tmp_path) == [disk.path]
        assert mounted_below(tmp_path) == []
    except MountRefused as refused:
        pytest.skip(f"no small disks: {refused}")


def test_without_privileges_networks_and_disks_are_left_out_and_the_rest_is_not(tmp_path):
    script = (
        "from pathlib import Path\n"
        "from nextgen.harness.chaos.nodes.chaos_cluster import ChaosCluster\n"
        "from nextgen.cli.local.plan import ClusterSize\n"
        f"cluster = ChaosCluster.create(ClusterSize(), Path({str(tmp_path / 'run')!r}))\n"
        "print(*cluster.kinds, '|', *sorted(cluster.unavailable))\n"
    )
    without = ["setpriv", "--bounding-set=-sys_admin,-net_admin"]
    command = [*without, "--inh-caps=-sys_admin,-net_admin", sys.executable, "-c", script]
    if os.geteuid():
        command = command[3:]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    assert ended.stdout.split() == [
        *("kill", "pause", "slow_disk", "clock", "restart_all"),
        *("|", "full_disk", "partition"),
    ]
