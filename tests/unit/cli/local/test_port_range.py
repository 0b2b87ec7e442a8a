import subprocess
import sys
from contextlib import ExitStack

import pytest

from nextgen.cli.local import port_range
from nextgen.cli.local.plan import (
    PORTS_PER_NODE,
    ClusterPlan,
    ClusterSize,
    make_plan_on_free_ports,
)
from nextgen.cli.local.port_range import PORTS_PER_RANGE, RANGES_MAX, PortRange, own_ports
from nextgen.kernel.errors import RefusesToStart

OTHER_PORTS = range(4_000, 4_000 + RANGES_MAX * PORTS_PER_RANGE)
TAKE_ONE = "from nextgen.cli.local.port_range import own_ports; print(own_ports().start)"


def test_no_two_ranges_share_a_port():
    with PortRange() as first, PortRange() as second:
        assert not set(first.ports) & set(second.ports)
        assert not set(first.ports) & set(own_ports())


def test_another_process_has_other_ports_and_leaves_them_when_it_ends():
    own = own_ports()

    starts = [
        int(subprocess.check_output([sys.executable, "-c", TAKE_ONE], timeout=60)) for _ in range(2)
    ]

    assert own.start not in starts
    assert own_ports() == own


def test_a_range_that_was_left_is_taken_again():
    with PortRange() as first:
        ports = first.ports

    with PortRange() as again:
        assert len(again.ports) == len(ports) == PORTS_PER_RANGE - 1


def test_one_more_than_there_are_ranges_shares_all_of_them(monkeypatch):
    # Not those of everybody: another process may look for one at this moment.
    monkeypatch.setattr(port_range, "FREE_PORT_FIRST", OTHER_PORTS.start)
    monkeypatch.setattr(port_range, "FREE_PORT_LAST", OTHER_PORTS.stop)
    with ExitStack() as stack:
        taken = [stack.enter_context(PortRange()) for _ in range(RANGES_MAX + 1)]
        exclusive = [one.ports for one in taken if one.is_exclusive]
        shared = [one.ports for one in taken if not one.is_exclusive]

    assert 1 <= len(exclusive) <= RANGES_MAX
    assert len({port for ports in exclusive for port in ports}) == sum(map(len, exclusive))
    assert set(shared) == {OTHER_PORTS}


def test_a_plan_lies_within_the_ports_of_the_process():
    for _ in range(20):
        plan = make_plan_on_free_ports(ClusterSize())

        used = [port for node in plan.nodes for port, _ in node.purposes()]
        assert set(used) <= set(own_ports())


def test_a_cluster_that_the_ports_have_no_room_for_is_refused(monkeypatch):
    # Whether they are free is another matter: clusters of other tests have some of them.
    monkeypatch.setattr(ClusterPlan, "check_ports", lambda _plan: None)
    brokers = len(own_ports()) // PORTS_PER_NODE - 3
    make_plan_on_free_ports(ClusterSize(1, 1, 1, brokers, shards=1))

    with pytest.raises(RefusesToStart, match="too few"):
        make_plan_on_free_ports(ClusterSize(1, 1, 1, brokers + 1, shards=1))
