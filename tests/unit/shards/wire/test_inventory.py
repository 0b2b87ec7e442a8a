"""States and rejections as callers see them."""

import pytest

from nextgen.kernel.events.decider import Rejected, RejectionCode
from protos.nextgen.v1 import inventory_pb2 as pb
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.wire.inventory import _LIVES, KINDS, item_message, rejected_result, rejected_topic


def test_a_tenant_is_seen_whole():
    tenant = Tenant("id-1", "acme", (("a", "1"),), 3, Life.DELETING)

    assert item_message(pb.KIND_TENANT, "acme", tenant).tenant == pb.Tenant(
        tenant_id="id-1",
        name="acme",
        properties={"a": "1"},
        version=3,
        state=pb.LIFE_STATE_DELETING,
    )


def test_a_namespace_is_seen_whole():
    namespace = Namespace("id-1", "acme/orders", "t-1", (("a", "1"),), 3, Life.ACTIVE)

    assert item_message(pb.KIND_NAMESPACE, "acme/orders", namespace).namespace == pb.Namespace(
        namespace_id="id-1",
        name="acme/orders",
        tenant_id="t-1",
        properties={"a": "1"},
        version=3,
        state=pb.LIFE_STATE_ACTIVE,
    )


def test_a_topic_is_seen_whole():
    topic = Topic("id-1", "persistent://a/b/c", 4, 3, "ns-1", 17, (("a", "1"),))

    assert item_message(pb.KIND_TOPIC, "persistent://a/b/c", topic).topic == pb.Topic(
        topic_id="id-1",
        name="persistent://a/b/c",
        partitions=4,
        properties={"a": "1"},
        version=3,
        namespace_id="ns-1",
        created_time_ms=17,
    )


def test_what_is_absent_has_a_name_and_no_value():
    item = item_message(pb.KIND_TENANT, "acme", None)

    assert item.WhichOneof("value") is None
    assert (item.kind, item.name) == (pb.KIND_TENANT, "acme")


def test_every_life_and_kind_has_its_word():
    assert set(_LIVES) == set(Life)
    assert set(KINDS) == set(pb.Kind.values()) - {pb.KIND_UNSPECIFIED, pb.KIND_ASSIGNMENT}


@pytest.mark.parametrize("code", RejectionCode)
def test_a_rejection_travels_with_code_and_reason(code):
    rejected = Rejected(code, "because")

    for message in (rejected_result(rejected), rejected_topic(rejected)):
        assert (message.rejection_code, message.message) == (code.value, "because")
