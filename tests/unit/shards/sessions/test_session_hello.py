"""What a broker may say of itself, and when it is who it was."""

from __future__ import annotations

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.limits.cluster import ADDRESS_BYTES_MAX, NODE_ID_BYTES_MAX, STORED_INTEGER_MAX
from nextgen.kernel.limits.stream import HELD_OBJECTS_PER_MESSAGE_MAX
from protos.nextgen.v1.broker_service_pb2 import BrokerHello, HeldMetadata, HeldObject
from protos.nextgen.v1.events_pb2 import BrokerEndpoints
from shards.sessions.session_hello import check_held, check_hello, is_same_broker


def hello(
    broker_id: str = "broker-1",
    grpc: str = "host:1",
    http: str = "",
    capacity_units: int = 10,
    zone: str = "z",
    rack: str = "r",
    last_sequence: int = 0,
    kind: str = "",
) -> BrokerHello:
    return BrokerHello(
        broker_id=broker_id,
        endpoints=BrokerEndpoints(grpc=grpc, http=http, pulsar_url="pulsar://host:2"),
        capacity_units=capacity_units,
        zone=zone,
        rack=rack,
        last_sequence=last_sequence,
        kind=kind,
    )


@pytest.mark.parametrize(
    "said",
    [
        hello(broker_id="b" * NODE_ID_BYTES_MAX),
        hello(http="h" * ADDRESS_BYTES_MAX),
        hello(last_sequence=STORED_INTEGER_MAX),
        hello(kind="stock"),
    ],
    ids=["id", "address", "sequence", "kind"],
)
def test_a_hello_at_its_limits_is_accepted(said: BrokerHello) -> None:
    check_hello(said)


@pytest.mark.parametrize(
    "said",
    [
        hello(broker_id=""),
        hello(broker_id="b" * (NODE_ID_BYTES_MAX + 1)),
        hello(broker_id="broker\n1"),
        hello(grpc=""),
        hello(http="h" * (ADDRESS_BYTES_MAX + 1)),
        hello(zone="z" * (ADDRESS_BYTES_MAX + 1)),
        hello(rack="r" * (ADDRESS_BYTES_MAX + 1)),
        hello(last_sequence=STORED_INTEGER_MAX + 1),
        hello(kind="of a later release"),
    ],
    ids=[
        *("no id", "long id", "odd id", "no endpoint", "long address", "zone", "rack"),
        *("sequence", "kind"),
    ],
)
def test_a_hello_that_makes_no_sense_is_refused(said: BrokerHello) -> None:
    with pytest.raises(InvalidRequest):
        check_hello(said)


def test_a_page_of_what_a_broker_holds_has_so_many_objects() -> None:
    held = HeldMetadata(objects=[HeldObject()] * HELD_OBJECTS_PER_MESSAGE_MAX)
    check_held(held)

    held.objects.add()

    with pytest.raises(InvalidRequest):
        check_held(held)


def test_a_broker_is_who_it_was_whatever_it_has_applied() -> None:
    assert is_same_broker(hello(), hello(last_sequence=7))


@pytest.mark.parametrize(
    "said",
    [
        hello(broker_id="broker-2"),
        hello(grpc="host:9"),
        hello(capacity_units=11),
        hello(zone="other"),
        hello(rack="other"),
        hello(kind="stock"),
    ],
    ids=["id", "endpoint", "capacity", "zone", "rack", "kind"],
)
def test_a_broker_that_says_something_else_of_itself_is_another(said: BrokerHello) -> None:
    assert not is_same_broker(hello(), said)
