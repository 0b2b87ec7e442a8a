"""Whether other brokers take units, and whether this one drains, as the cluster reports it."""

from __future__ import annotations

from brokers.adapters.cluster.neighbours import ClusterNeighbours
from nextgen.client.cluster.view import ClusterView
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.events_pb2 import BrokerRecorded


def known(*brokers: BrokerRecorded) -> ClusterNeighbours:
    view = ClusterView()
    view.apply(ClusterUpdate(brokers=brokers))
    return ClusterNeighbours(view, "own", wall_ms=lambda: 1_000)


def broker(broker_id: str, **fields: object) -> BrokerRecorded:
    values = {"session_id": f"s-{broker_id}", "epoch": 1, "is_live": True, **fields}
    return BrokerRecorded(broker_id=broker_id, **values)  # type: ignore[arg-type]


def test_a_broker_alone_has_nobody_to_take_its_units() -> None:
    assert not known(broker("own")).may_take_units()


def test_another_takes_units_unless_it_is_gone_drains_or_is_in_quarantine() -> None:
    assert known(broker("own"), broker("other")).may_take_units()
    for other in (
        broker("other", is_live=False),
        broker("other", draining=True),
        broker("other", quarantined_until_ms=1_001),
    ):
        assert not known(broker("own"), other).may_take_units()
    assert known(broker("other", quarantined_until_ms=1_000)).may_take_units()


def test_brokers_of_another_kind_take_no_units() -> None:
    assert not known(broker("own"), broker("other", kind="stock")).may_take_units()
    assert not known(broker("own", kind="stock"), broker("other")).may_take_units()
    assert known(broker("own", kind="stock"), broker("other", kind="stock")).may_take_units()


def test_it_drains_when_its_own_live_session_does() -> None:
    assert known(broker("own", draining=True)).is_draining()
    assert not known(broker("own", draining=True, is_live=False)).is_draining()
    assert not known(broker("other", draining=True)).is_draining()
