"""A network namespace for each node, so that links between them can be cut. Linux, with root.

    host ── veth ──┐  a namespace with nothing but a bridge
                   ├── veth ── node 1's namespace, 10.213.n.11
                   ├── veth ── node 2's namespace, 10.213.n.12

The bridge has a namespace of its own, because the host's packet filter sees packets that are
bridged on the host and may drop them. A cut is a routing rule of the receiver without a route for
packets from an address. The kernel drops them silently, like a broken switch, and counts them. So
one direction can be cut alone. This needs ``iproute2`` and no packet filter. The host, where
clients run, is never cut off.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil

from nextgen.kernel.errors import Unavailable

NETWORK_PREFIX = "10.213"
NODES_MAX = 200
"""Addresses for nodes in one /24 network."""

COMMAND_TIMEOUT_S = 10
_FIRST_NODE = 11
_HOST_NUMBER = 1
_NAME = re.compile(r"^ngc(\d+)x\d+$")
_TOOLS = ("ip", "nsenter")

_CUTS_BEFORE = 1_000
"""Priority of the rule that accepts packets for a node. Rules of cuts come before it."""

_BEFORE_CUTS = (
    # The kernel's own rule comes before all others, so replace it.
    f"rule add pref {_CUTS_BEFORE} lookup local",
    "rule del pref 0",
)

_COUNTED = "InAddrErrors"
"""Name of the counter in ``/proc/net/snmp`` of a namespace's packets without a route."""

_FORWARDING = "/proc/sys/net/ipv4/ip_forward"


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two nodes: packets from ``sender`` to ``receiver``."""

    sender: str
    receiver: str


class NodeNetwork:
    """The namespaces of one cluster. ``remove`` it at the end, when its processes have ended.

    All methods block for some milliseconds per node.
    """

    def __init__(self, node_ids: Sequence[str]) -> None:
        assert len(node_ids) <= NODES_MAX, "one network has no room for so many nodes"
        self._tag = f"ngc{os.getpid()}x"
        self._number = 0
        self._places = {node_id: place for place, node_id in enumerate(node_ids, start=1)}
        self._cut: set[Link] = set()
        self._changing = threading.Lock()

    def set_up(self) -> None:
        """Create all namespaces and links.

        Raises:
            Unavailable: Privileges or tools are missing. Nothing is left behind.
        """
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            raise Unavailable(f"there is no {missing[0]} command")
        remove_abandoned()
        try:
            self._number = _free_number()
            self._make()
        except Unavailable:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove all existing namespaces and links."""
        for name in _namespaces():
            if name.startswith(self._tag):
                _quietly(["ip", "netns", "del", name])
        _quietly(["ip", "link", "del", self._host_link])

    def address(self, node_id: str) -> str:
        """Return the IPv4 address of a node."""
        return f"{self._net}.{_FIRST_NODE + self._places[node_id] - 1}"

    def entering(self, node_id: str) -> list[str]:
        """Return the prefix of a command that runs it at a node, in the same process."""
        return ["nsenter", f"--net=/run/netns/{self._namespace(node_id)}"]

    def cut(self, links: Iterable[Link]) -> None:
        """Start to drop packets on these links."""
        with self._changing:
            for link in set(links) - self._cut:
                self._rule("add", link)
                self._cut.add(link)

    def heal(self) -> None:
        """Restore every link."""
        self.mend(tuple(self._cut))

    def mend(self, links: Iterable[Link]) -> None:
        """Restore these links; those that are not cut are unchanged."""
        with self._changing:
            for link in set(links) & self._cut:
                self._rule("del", link)
                self._cut.discard(link)

    def dropped(self, node_ids: Iterable[str] | None = None) -> int:
        """Return how many packets cuts have dropped so far, at these nodes or at all."""
        total = 0
        for node_id in node_ids or self._places:
            shown = _run([*self.entering(node_id), "cat", "/proc/net/snmp"])
            names, numbers = (line.split() for line in shown.splitlines() if line[:3] == "Ip:")
            total += int(numbers[names.index(_COUNTED)])
        return total

    @property
    def _net(self) -> str:
        return f"{NETWORK_PREFIX}.{self._number}"

    @property
    def _hub(self) -> str:
        return f"{self._tag}0"

    @property
    def _host_link(self) -> str:
        # An interface's name has at most 15 characters.
        return f"ngc{os.getpid()}"

    def _namespace(self, node_id: str) -> str:
        return f"{self._tag}{self._places[node_id]}"

    def _rule(self, action: str, link: Link) -> None:
        place = self._places[link.sender]
        rule = f"pref {place} from {self.address(link.sender)} iif eth0 blackhole"
        _batch(self._namespace(link.receiver), [f"rule {action} {rule}"])

    def _make(self) -> None:
        hub = self._hub
        for name in (hub, *map(self._namespace, self._places)):
            _run(["ip", "netns", "add", name])
        _batch(
            hub,
            [
                "link set lo up",
                "link add bridge type bridge",
                "link set bridge up",
                f"link add host type veth peer name {self._host_link} netns {os.getpid()}",
                "link set host master bridge up",
            ],
        )
        _run(["ip", "addr", "add", f"{self._net}.{_HOST_NUMBER}/24", "dev", self._host_link])
        _run(["ip", "link", "set", self._host_link, "up"])
        for node_id, place in self._places.items():
            name = self._namespace(node_id)
            _batch(
                hub,
                [
                    f"link add node{place} type veth peer name eth0 netns {name}",
                    f"link set node{place} master bridge up",
                ],
            )
            self._stop_forwarding(node_id)
            _batch(
                name,
                [
                    "link set lo up",
                    f"addr add {self.address(node_id)}/24 dev eth0",
                    "link set eth0 up",
                    *_BEFORE_CUTS,
                ],
            )

    def _stop_forwarding(self, node_id: str) -> None:
        # A namespace inherits the host's setting, which container engines turn on, and the kernel
        # of a router does not count the packets that it has no route for.
        entering = self.entering(node_id)
        if _run([*entering, "cat", _FORWARDING]).strip() != "0":
            _run([*entering, "tee", _FORWARDING], text="0\n")


def remove_abandoned() -> None:
    """Remove the leftovers of killed runs."""
    for name in _namespaces():
        found = _NAME.match(name)
        if found and not psutil.pid_exists(int(found[1])):
            _quietly(["ip", "netns", "del", name])


def _free_number() -> int:
    """Return a number whose network no interface of this host has."""
    shown = _run(["ip", "-4", "-o", "addr", "show"])
    free = [number for number in range(1, 255) if f" {NETWORK_PREFIX}.{number}." not in shown]
    if not free:
        raise Unavailable(f"every network of {NETWORK_PREFIX}.0.0/16 is taken")
    return random.choice(free)


def _namespaces() -> list[str]:
    try:
        shown = _run(["ip", "netns", "list"])
    except Unavailable:
        return []
    return [line.split()[0] for line in shown.splitlines() if line.strip()]


def _batch(namespace: str, commands: Sequence[str]) -> None:
    _run(["ip", "-n", namespace, "-batch", "-"], text="\n".join(commands) + "\n")


def _quietly(command: Sequence[str]) -> None:
    try:
        _run(command)
    except Unavailable:
        return  # It does not exist.


def _run(command: Sequence[str], *, text: str = "") -> str:
    try:
        ended = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} cannot be run: {error}") from error
    if ended.returncode:
        raise Unavailable(f"{' '.join(command)}: {ended.stderr.strip() or ended.returncode}")
    return ended.stdout
