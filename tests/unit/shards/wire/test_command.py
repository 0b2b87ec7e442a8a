"""Every command that can arrive is parsed, its slots are known, bad names are rejections."""

import pytest

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PARTITIONS_PER_TOPIC_MAX, STORED_INTEGER_MAX
from nextgen.kernel.routing.hashing import slot_of
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.wire.command import (
    COMMAND_PARSERS,
    OnGate,
    OnNewTopics,
    OnShadows,
    RefusedCommand,
    is_of_tenant,
    parse_command,
    slots_of,
)

A_SOURCE = "persistent://a/b/c"
COMMANDS = {
    "create_tenant": (pb.CreateTenant(name="acme"), "acme"),
    "set_tenant_properties": (pb.SetTenantProperties(name="acme"), "acme"),
    "delete_tenant": (pb.DeleteTenant(name="acme"), "acme"),
    "create_namespace": (pb.CreateNamespace(name="a/b"), "a/b"),
    "set_namespace_properties": (pb.SetNamespaceProperties(name="a/b"), "a/b"),
    "delete_namespace": (pb.DeleteNamespace(name="a/b"), "a/b"),
    "create_topics": (pb.CreateTopics(topics=[pb.TopicSpec(name="a/b/c")]), "a/b/c"),
    "grow_topic": (pb.GrowTopic(name="topic://a/b/c"), "a/b/c"),
    "set_topic_properties": (pb.SetTopicProperties(name="topic://a/b/c"), "a/b/c"),
    "delete_topic": (pb.DeleteTopic(name="c"), "public/default/c"),
    "change_layout": (pb.ChangeLayout(name="topic://a/b/c"), "a/b/c"),
    "abandon_layout_change": (pb.AbandonLayoutChange(name="topic://a/b/c"), "a/b/c"),
    "create_scalable_subscription": (
        pb.CreateScalableSubscription(name="topic://a/b/c"),
        "a/b/c",
    ),
    "delete_scalable_subscription": (
        pb.DeleteScalableSubscription(name="topic://a/b/c"),
        "a/b/c",
    ),
    "seek_scalable_subscription": (pb.SeekScalableSubscription(name="topic://a/b/c"), "a/b/c"),
    "register_scalable_consumer": (pb.RegisterScalableConsumer(name="topic://a/b/c"), "a/b/c"),
    "remove_scalable_consumer": (pb.RemoveScalableConsumer(name="topic://a/b/c"), "a/b/c"),
    "rename_topic": (pb.RenameTopic(name="a/b/c", new_name="a/b/d"), "a/b/c"),
    "point_name": (pb.PointName(name=A_SOURCE, topic_id="0001" + 20 * "a"), "a/b/c"),
    "set_policies": (pb.SetPolicies(kind=KIND_TOPIC, name="a/b/c"), "a/b/c"),
    "admit_shadow": (pb.AdmitShadow(source=A_SOURCE, shard_id=1), "a/b/c"),
    "unlist_shadow": (
        pb.UnlistShadow(source=A_SOURCE, shadow="persistent://d/e/f"),
        "a/b/c",
    ),
}
OF_SHADOWS = ("admit_shadow", "unlist_shadow")
GATES = {
    "close_parent_gate": pb.CloseParentGate(
        parent_kind="tenant", parent_name="acme", parent_id="i", attempt=1
    ),
    "reopen_parent_gate": pb.ReopenParentGate(
        parent_kind="namespace", parent_name="a/b", parent_id="i", attempt=1
    ),
    "grow_shadows": pb.GrowShadows(source=A_SOURCE, source_id="i", attempt=1, partitions=2),
}


def test_every_command_of_the_contract_is_known():
    fields = {field.name for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields}

    assert set(COMMAND_PARSERS) == fields == set(COMMANDS) | set(GATES)


@pytest.mark.parametrize("field", COMMANDS)
def test_a_command_goes_to_the_slot_of_its_routing_key(field):
    body, routing_key = COMMANDS[field]

    parsed = parse_command(pb.Command(command_id=b"i" * 16, **{field: body}))

    assert parsed.command_id == b"i" * 16
    assert slots_of(parsed) == (slot_of(routing_key),)


@pytest.mark.parametrize("field", GATES)
def test_an_order_to_a_gate_goes_to_any_shard(field):
    parsed = parse_command(pb.Command(**{field: GATES[field]}))

    assert isinstance(parsed, OnGate | OnShadows)
    assert not is_of_tenant(parsed)
    assert slots_of(parsed) == ()


@pytest.mark.parametrize("field", sorted(set(COMMANDS) - {"create_topics"}))
def test_a_bad_name_is_the_commands_rejection(field):
    body = type(COMMANDS[field][0])()
    body.CopyFrom(COMMANDS[field][0])
    setattr(body, "source" if field in OF_SHADOWS else "name", "a//b//c")

    parsed = parse_command(pb.Command(**{field: body}))

    assert isinstance(parsed, RefusedCommand)
    assert parsed.rejected.code is RejectionCode.INVALID_NAME
    assert slots_of(parsed) == ()


def test_a_bad_name_among_topics_to_create_is_that_topics_rejection():
    specs = [pb.TopicSpec(name="a//b"), pb.TopicSpec(name="a/b/c")]

    parsed = parse_command(pb.Command(create_topics=pb.CreateTopics(topics=specs)))

    assert isinstance(parsed, OnNewTopics)
    assert parsed.topics[0].code is RejectionCode.INVALID_NAME
    assert slots_of(parsed) == (slot_of("a/b/c"),)


@pytest.mark.parametrize(
    "order",
    [
        pb.CloseParentGate(parent_kind="tenant", parent_name="acme", attempt=1),
        pb.CloseParentGate(parent_kind="tenant", parent_name="acme", parent_id="i"),
        pb.CloseParentGate(parent_kind="segment", parent_name="acme", parent_id="i", attempt=1),
    ],
    ids=["no-id", "no-attempt", "kind"],
)
def test_an_incomplete_order_to_a_gate_is_refused(order):
    with pytest.raises(InvalidRequest):
        parse_command(pb.Command(close_parent_gate=order))


@pytest.mark.parametrize(
    "order",
    [
        {"admit_shadow": pb.AdmitShadow(source=A_SOURCE)},
        {"admit_shadow": pb.AdmitShadow(source="a/b/c", shard_id=1)},
        {"admit_shadow": pb.AdmitShadow(source="topic://a/b/c", shard_id=1)},
        {"unlist_shadow": pb.UnlistShadow(source=A_SOURCE, shadow="a/b/d")},
        {"unlist_shadow": pb.UnlistShadow(source=f"{A_SOURCE}-partition-1", shadow=A_SOURCE)},
        {"grow_shadows": pb.GrowShadows(source=A_SOURCE, source_id="i", attempt=1)},
        {
            "grow_shadows": pb.GrowShadows(
                source=A_SOURCE, source_id="i", partitions=PARTITIONS_PER_TOPIC_MAX
            )
        },
        {
            "grow_shadows": pb.GrowShadows(
                source=A_SOURCE,
                source_id="i",
                attempt=1,
                partitions=PARTITIONS_PER_TOPIC_MAX + 1,
            )
        },
        {
            "close_parent_gate": pb.CloseParentGate(
                parent_kind="topic", parent_name="a/b/c", parent_id="i", attempt=1
            )
        },
    ],
)
def test_an_order_about_shadows_that_no_shard_sends_is_refused(order):
    with pytest.raises(InvalidRequest):
        parse_command(pb.Command(**order))


@pytest.mark.parametrize("order", ["close_parent_gate", "reopen_parent_gate"])
def test_an_attempt_that_no_table_holds_is_refused(order):
    names = {"parent_kind": "tenant", "parent_name": "acme", "parent_id": "i"}
    field = pb.Command.DESCRIPTOR.fields_by_name[order]
    body = field.message_type._concrete_class

    parse_command(pb.Command(**{order: body(attempt=STORED_INTEGER_MAX, **names)}))
    with pytest.raises(InvalidRequest):
        parse_command(pb.Command(**{order: body(attempt=STORED_INTEGER_MAX + 1, **names)}))
