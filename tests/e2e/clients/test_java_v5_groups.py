"""Groups of stock Java clients of Pulsar 5, each member in a process of its own, while segments are
split and merged, and members and servers are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nextgen.cli.local.plan import NodePlan
from protos.nextgen.v1 import topic_admin_pb2 as pb
from tests.support.callers.foreign_client import java_v5_program
from tests.support.callers.stock_client import ClusterSize, PulsarSystem, operated
from tests.support.processes.local_cluster import LocalCluster, blocking_cluster

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=3, shards=1)
SUBSCRIPTION = "group"
SEGMENTS = 6
"""The most that the topic of the kills has at once."""

ATTEMPTS = 20
"""At being quicker than a client: most of them succeed."""

WAIT_S = 180
"""For what must come about. Only a failing test waits that long."""

GRACE_MS = 20_000
"""A client of 5.0.0-M1 has no command to leave: its segments go to others after the grace, by
default a minute. Clients whose server was killed are back long before."""


class ShorterGrace(LocalCluster):
    """A cluster whose shards wait ``GRACE_MS`` for clients that are gone."""

    def environment_of(self, node: NodePlan) -> dict[str, str]:
        grace = {"NEXTGEN_SCALABLE_CONSUMER_GRACE_MS": str(GRACE_MS)}
        return super().environment_of(node) | grace


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarSystem]:
    directory = tmp_path_factory.mktemp("groups")
    with (
        blocking_cluster(directory, SIZE, kind=ShorterGrace) as cluster,
        operated(cluster) as running,
    ):
        yield running


class Program:
    """A Java program of its own, which can be killed."""

    def __init__(self, main: str, heap: str, *arguments: str) -> None:
        self._complaints: deque[str] = deque(maxlen=200)
        self._process = subprocess.Popen(
            [*java_v5_program(main, heap), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.input = self._process.stdin
        self.output = self._process.stdout
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            self._complaints.extend(errors)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Kill it, and show what it complained of."""
        self.kill()
        self._listening.join()
        print("".join(self._complaints))
        self.output.close()
        with contextlib.suppress(BrokenPipeError):
            self.input.close()


class Member:
    """A stream consumer. ``received`` are key, number, segment and time of each message."""

    def __init__(self, system: PulsarSystem, topic: str, name: str) -> None:
        self.received: list[tuple[int, int, int, int]] = []
        self._program = Program(
            "checks.Member", "128m", system.service_url, topic, SUBSCRIPTION, name
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        for line in self._program.output:
            if line.endswith("]\n"):
                self.received.append(tuple(json.loads(line)))

    def leave(self) -> None:
        self._program.input.close()

    def kill(self) -> None:
        self._program.kill()
        self._reading.join()

    def close(self) -> None:
        self.kill()
        self._program.close()


class Load:
    """The stock producer, at a rate; it sends the next message of a key behind the one before."""

    def __init__(self, system: PulsarSystem, topic: str, *, per_second: int, keys: int) -> None:
        self.keys = keys
        self._program = Program(
            *("checks.Paced", "256m", system.service_url, topic, str(per_second), str(keys))
        )

    def take(self) -> dict[str, Any]:
        """Return what happened since the last call."""
        self._program.input.write("\n")
        self._program.input.flush()
        return self._answer()

    def end(self) -> list[set[int]]:
        """Return the numbers that were acknowledged, by key."""
        self._program.input.close()
        last = self._answer()
        print(f"acknowledged {last['acknowledged']}, unanswered keys {last['unanswered_keys']}")
        assert not last["failed"]
        return [set(range(key, number + 1, self.keys)) for key, number in enumerate(last["last"])]

    def close(self) -> None:
        self._program.close()

    def _answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._program.output.readline())
        return answer


def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def owners(system: PulsarSystem, topic: str) -> dict[str, list[str]]:
    """Return the members that each active segment's broker has."""
    return {
        each: sorted(
            consumer.name.partition("-seg-")[0]
            for subscription in system.operate(each, pb.GetStatsRequest()).subscriptions
            for consumer in subscription.rows
            if subscription.name == SUBSCRIPTION
        )
        for each in system.segments_of(topic)
    }


def until_shared(system: PulsarSystem, topic: str, members: int, largest: int) -> None:
    """Wait until each segment has one member, and no member more than ``largest``."""
    found: dict[str, list[str]] = {}

    def holds() -> bool:
        found.clear()
        found.update(owners(system, topic))
        names = [name for each in found.values() for name in each]
        return (
            all(len(each) == 1 for each in found.values())
            and len(set(names)) == members
            and max(names.count(each) for each in names) <= largest
        )

    until(holds, lambda: f"{found}")


def judge(members: list[Member], sent: list[set[int]]) -> None:
    """Everything that was acknowledged came, and first came in the order of its key."""
    first: dict[tuple[int, int], int] = {}
    for member in members:
        for key, number, _, at in member.received:
            first[key, number] = min(at, first.get((key, number), at))
    lost = {
        (key, number)
        for key, numbers in enumerate(sent)
        for number in numbers
        if (key, number) not in first
    }
    assert not lost, f"{len(lost)} lost, such as {sorted(lost)[:5]}"
    for key, numbers in enumerate(sent):
        times = [first[key, number] for number in sorted(numbers)]
        assert times == sorted(times), f"key {key} came out of its order"


def until_received(members: list[Member], sent: list[set[int]]) -> None:
    wanted = {(key, number) for key, numbers in enumerate(sent) for number in numbers}

    def missing() -> set[tuple[int, int]]:
        came = {(key, number) for each in members for key, number, *_ in list(each.received)}
        return wanted - came

    until(lambda: not missing(), lambda: f"{len(missing())} of {len(wanted)} did not come")


def test_members_share_segments_and_take_over_from_those_that_are_gone(
    system: PulsarSystem,
) -> None:
    topic = "topic://public/default/java-v5-group"
    system.create_scalable(topic, 4)
    load = Load(system, topic, per_second=200, keys=40)
    members = [Member(system, topic, "one")]
    try:
        # One that makes its first consumers takes no notice of another assignment.
        until_shared(system, topic, 1, 4)
        members.append(Member(system, topic, "two"))
        until_shared(system, topic, 2, 2)
        members.append(Member(system, topic, "three"))
        until_shared(system, topic, 3, 2)
        system.split_first(topic)
        until_shared(system, topic, 3, 2)
        for _ in range(3):
            system.merge_first(topic)
        # A member without a segment waits.
        until_shared(system, topic, 2, 1)
        for _ in range(2):
            system.split_first(topic)
        until_shared(system, topic, 3, 2)
        (largest,) = system.segments_of(topic)[-1:]
        number = largest.rpartition("-")[2]
        # Members of this release take no buckets: the segment stays whole.
        system.command("scalable-topics", "rebucket", topic, number, "--buckets", "8")
        until_shared(system, topic, 3, 2)
        members[0].kill()
        members[1].leave()
        began = time.monotonic()
        until(
            lambda: set(map(tuple, owners(system, topic).values())) == {("three",)},
            lambda: f"{owners(system, topic)}",
        )
        print(f"the others' segments are taken over after {time.monotonic() - began:.1f} s")
        sent = load.end()
        until_received(members, sent)
        judge(members, sent)
    finally:
        load.close()
        for each in members:
            each.close()


def unacknowledged(system: PulsarSystem, segment: str) -> int:
    """Return how many entries of a segment the group has not acknowledged."""
    (group,) = system.operate(segment, pb.GetStatsRequest()).subscriptions
    assert group.name == SUBSCRIPTION
    return int(group.backlog_entries)


def lose_acknowledgement(system: PulsarSystem, topic: str, member: Member, segment: str) -> bool:
    """Kill the segment's broker before it reads the acknowledgement of the last message.

    Returns False if the client was quicker: it sends what it has every 100 ms.
    """
    owner = system.owner(segment)
    load = Load(system, topic, per_second=2, keys=1)
    try:
        before = len(member.received)
        until(lambda: len(member.received) >= before + 2, lambda: f"{member.received[before:]}")
        seen = len(member.received)
        deadline = time.monotonic() + WAIT_S
        while len(member.received) == seen:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process_id = system.process_id(owner)
        assert process_id is not None
        os.kill(process_id, signal.SIGSTOP)
    finally:
        load.close()
    time.sleep(0.5)  # The client writes the acknowledgement to the socket.
    system.kill(owner)
    system.start(owner)
    until(lambda: owners(system, topic)[segment] == ["one"], lambda: f"{owners(system, topic)}")
    return unacknowledged(system, segment) > 0


def test_acknowledgements_that_died_with_a_broker_do_not_hold_children_up(
    system: PulsarSystem,
) -> None:
    topic = "topic://public/default/java-v5-lost-acknowledgements"
    system.create_scalable(topic, 1)
    (segment,) = system.segments_of(topic)
    member = Member(system, topic, "one")
    try:
        until_shared(system, topic, 1, 1)
        attempts = (lose_acknowledgement(system, topic, member, segment) for _ in range(ATTEMPTS))
        assert any(attempts), "the client's acknowledgement was quicker each time"
        system.split_first(topic)
        # The client drops the message that it gets again, and will not acknowledge it any more.
        until_shared(system, topic, 1, 2)
        last = member.received[-1]
        assert [each[:2] for each in member.received].count(last[:2]) == 2, "it came once more"
        assert unacknowledged(system, segment) == 0
    finally:
        member.close()


def test_nothing_is_lost_when_servers_are_killed_while_segments_change(
    system: PulsarSystem,
) -> None:
    topic = "topic://public/default/java-v5-kills"
    system.create_scalable(topic, 2)
    load = Load(system, topic, per_second=1_000, keys=500)
    members = [Member(system, topic, "one")]
    try:
        until_shared(system, topic, 1, 2)
        members.append(Member(system, topic, "two"))
        until_shared(system, topic, 2, 1)
        for round_ in range(2):
            for what, node in (
                ("owner", lambda: system.owner(system.segments_of(topic)[0])),
                ("shard leader", system.busiest_shard_leader),
                ("discovery node", lambda: system.discovery_nodes[0]),
                ("other discovery node", lambda: system.discovery_nodes[1]),
            ):
                killed = node()
                change = system.merge_first if round_ else system.split_first
                load.take()
                changing = threading.Thread(target=change, args=(topic,))
                changing.start()
                time.sleep(0.01)
                system.kill(killed)
                changing.join()
                system.start(killed)
                until_shared(system, topic, 2, SEGMENTS)
                taken = load.take()
                print(
                    f"{change.__name__}, {what} killed: slowest message "
                    f"{taken['slowest_ms']:.0f} ms, gap {taken['longest_gap_ms']:.0f} ms"
                )
        sent = load.end()
        until_received(members, sent)
        judge(members, sent)
    finally:
        load.close()
        for each in members:
            each.close()
