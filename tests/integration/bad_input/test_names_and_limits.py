"""Invalid names and numbers beyond the limits, at the public port: the refusal gives the reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message import Message

from nextgen.kernel.limits.cluster import (
    COMMAND_ID_BYTES,
    MOVES_PER_REQUEST_MAX,
    NAME_PART_BYTES_MAX,
    NAMES_PER_LOOKUP_MAX,
    PAGE_ITEMS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    PROPERTY_KEY_BYTES_MAX,
    PROPERTY_VALUE_BYTES_MAX,
    TOPIC_LOCAL_NAME_BYTES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
    TOPICS_PER_CREATE_MAX,
    TRACE_ID_CHARACTERS_MAX,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from tests.integration.bad_input.conftest import NAMESPACE, TOPIC, Site
from tests.support.callers.member_channel import member_channel
from tests.support.callers.raw_calls import Outcome, call, methods

METHODS = {method.name: method for method in methods() if method.server == "discovery"}
NOWHERE = f"persistent://{NAMESPACE}"

BAD_TOPICS = {
    "": "has an empty part",
    "two/parts": "has two parts",
    "persistent://t/n": "is not domain://tenant/namespace/topic",
    "persistent://t//x": "has an empty part",
    "persistent://t/cluster/n/x": "are Pulsar's first version",
    "kafka://t/n/x": "has the unknown domain 'kafka'",
    "persistent://t t/n/x": "has a character other than",
    "persistent://t/n\u00e9/x": "has a character other than",
    "persistent://../n/x": "is only dots",
    "persistent://t/n/..": "is only dots",
    "persistent://t/n/a\nb": "has a control character",
    "persistent://t/n/ x": "has white space at an end",
    "persistent://t/n/-partition-1": "names a partition of nothing",
    "persistent://t/n/x-partition-1-partition-2": "names a partition of a partition",
    f"persistent://t/n/x-partition-{PARTITIONS_PER_TOPIC_MAX}": "a topic has at most 10000",
    "topic://t/n/x-partition-1": "a scalable topic has segments",
    "segment://t/n/x/y": "does not end in a segment descriptor",
    "segment://t/n/x/7fff-0000-1": "ends before it starts",
    f"persistent://{'t' * (NAME_PART_BYTES_MAX + 1)}/n/x": "at most 255 are allowed",
    f"persistent://t/n/{'x' * (TOPIC_LOCAL_NAME_BYTES_MAX + 1)}": "at most 1024 are allowed",
    "x" * (TOPIC_TEXT_CHARACTERS_MAX + 1): "at most 2048 are allowed",
}
BAD_NAMESPACES = {
    "": "is not of the form tenant/namespace",
    "t": "is not of the form tenant/namespace",
    "t/c/n": "are Pulsar's first version",
    "t/": "is empty",
    "t/.": "is only dots",
    "t/" + "n" * (NAME_PART_BYTES_MAX + 1): "at most 255 are allowed",
}
BAD_TENANTS = {
    "": "is empty",
    "a/b": "has a character other than",
    "a\x00": "has a character other than",
    "..": "is only dots",
    "t" * (NAME_PART_BYTES_MAX + 1): "at most 255 are allowed",
}


async def ask(site: Site, name: str, request: Message) -> Outcome:
    async with member_channel(site.discovery) as channel:
        return await call(channel, METHODS[name], request.SerializeToString())


async def answered(site: Site, name: str, request: Message) -> Any:
    outcome = await ask(site, name, request)
    assert outcome.status == "OK", outcome
    return METHODS[name].response.FromString(outcome.answers[0])


async def create(site: Site, *specs: shard_pb.TopicSpec) -> list[shard_pb.TopicOutcome]:
    return list((await answered(site, "CreateTopics", pb.CreateTopicsRequest(topics=specs))).topics)


async def test_every_bad_name_of_a_lookup_gets_its_reason_and_the_good_one_its_broker(
    site: Site,
) -> None:
    request = pb.LookupRequest(topics=[*BAD_TOPICS, TOPIC])
    for name in ("Lookup", "LookupStream"):
        response = await answered(site, name, request)

        for answer, (text, why) in zip(response.answers, BAD_TOPICS.items(), strict=False):
            assert (answer.topic, answer.rejection_code) == (text, "INVALID_NAME")
            assert why in answer.message
        assert response.answers[-1].broker_id == "broker-1"


async def test_every_bad_name_of_a_create_gets_its_reason_and_the_good_one_is_created(
    site: Site,
) -> None:
    good = shard_pb.TopicSpec(name=f"{NOWHERE}/created")

    outcomes = await create(site, *(shard_pb.TopicSpec(name=text) for text in BAD_TOPICS), good)

    for outcome, why in zip(outcomes, BAD_TOPICS.values(), strict=False):
        assert outcome.rejection_code == "INVALID_NAME"
        assert why in outcome.message
    assert outcomes[-1].topic_id


@pytest.mark.parametrize("name", ["GetTopic", "DeleteTopic", "SetTopicProperties", "MoveTopics"])
async def test_bad_topics_are_refused_with_the_reason(site: Site, name: str) -> None:
    for text, why in BAD_TOPICS.items():
        if name == "MoveTopics":
            moves = pb.MoveTopicsRequest(moves=[shard_pb.TopicMove(topic=text)])
            (answer,) = (await answered(site, name, moves)).answers
            assert answer.rejection_code == "INVALID_NAME"
            assert why in answer.message
        else:
            check(await ask(site, name, METHODS[name].request(name=text)), why)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("kind", "bad_names"), [("Namespace", BAD_NAMESPACES), ("Tenant", BAD_TENANTS)]
)
async def test_bad_parents_are_refused_with_the_reason(
    site: Site, kind: str, bad_names: Mapping[str, str]
) -> None:
    for text, why in bad_names.items():
        for verb in (f"Create{kind}", f"Set{kind}Properties", f"Delete{kind}", f"Get{kind}"):
            check(await ask(site, verb, METHODS[verb].request(name=text)), why)  # type: ignore[call-arg]
        children = "ListTopics" if kind == "Namespace" else "ListNamespaces"
        check(await ask(site, children, pb.ListObjectsRequest(parent=text)), why)


def check(outcome: Outcome, why: str) -> None:
    assert outcome.status == "INVALID_ARGUMENT", outcome
    assert outcome.reason == "INVALID_REQUEST"
    assert outcome.error is not None
    assert why in outcome.error.message


async def test_parts_of_topics_are_not_created(site: Site) -> None:
    outcomes = await create(
        site,
        shard_pb.TopicSpec(name=f"topic://{NAMESPACE}/scalable", segments=10_000),
        shard_pb.TopicSpec(name=f"segment://{NAMESPACE}/scalable/0000-7fff-3"),
        shard_pb.TopicSpec(name=f"{NOWHERE}/whole-partition-3"),
    )

    assert [each.rejection_code for each in outcomes] == [
        *("LIMIT_EXCEEDED", "NOT_ALLOWED", "INVALID_NAME")
    ]


async def test_lists_have_a_limit(site: Site) -> None:
    topic = shard_pb.TopicSpec(name=f"{NOWHERE}/one-of-many")
    move = shard_pb.TopicMove(topic=f"{NOWHERE}/never-was", target_broker_id="broker-9")

    for name, at_limit, beyond in (
        (
            "Lookup",
            pb.LookupRequest(topics=[TOPIC] * NAMES_PER_LOOKUP_MAX),
            pb.LookupRequest(topics=[TOPIC] * (NAMES_PER_LOOKUP_MAX + 1)),
        ),
        (
            "LookupStream",
            pb.LookupRequest(topics=[TOPIC] * NAMES_PER_LOOKUP_MAX),
            pb.LookupRequest(topics=[TOPIC] * (NAMES_PER_LOOKUP_MAX + 1)),
        ),
        (
            "Lookup",
            pb.LookupRequest(topics=[TOPIC], trace_id="t" * TRACE_ID_CHARACTERS_MAX),
            pb.LookupRequest(topics=[TOPIC], trace_id="t" * (TRACE_ID_CHARACTERS_MAX + 1)),
        ),
        (
            "CreateTopics",
            pb.CreateTopicsRequest(topics=[topic] * TOPICS_PER_CREATE_MAX),
            pb.CreateTopicsRequest(topics=[topic] * (TOPICS_PER_CREATE_MAX + 1)),
        ),
        (
            "MoveTopics",
            pb.MoveTopicsRequest(moves=[move] * MOVES_PER_REQUEST_MAX),
            pb.MoveTopicsRequest(moves=[move] * (MOVES_PER_REQUEST_MAX + 1)),
        ),
        (
            "ListTenants",
            pb.ListObjectsRequest(page_size=PAGE_ITEMS_MAX),
            pb.ListObjectsRequest(page_size=PAGE_ITEMS_MAX + 1),
        ),
    ):
        taken = await ask(site, name, at_limit)
        refused = await ask(site, name, beyond)

        assert (taken.status, taken.reason) == ("OK", ""), name
        assert refused.reason == "INVALID_REQUEST", name


@pytest.mark.parametrize("name", ["Lookup", "CreateTopics", "MoveTopics"])
async def test_a_list_has_at_least_one_element(site: Site, name: str) -> None:
    assert (await ask(site, name, METHODS[name].request())).reason == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("at_limit", "beyond"),
    [
        (
            {str(number): "" for number in range(PROPERTIES_MAX)},
            {str(number): "" for number in range(PROPERTIES_MAX + 1)},
        ),
        ({"k" * PROPERTY_KEY_BYTES_MAX: ""}, {"k" * (PROPERTY_KEY_BYTES_MAX + 1): ""}),
        ({"k": "v" * PROPERTY_VALUE_BYTES_MAX}, {"k": "v" * (PROPERTY_VALUE_BYTES_MAX + 1)}),
        ({"k": ""}, {"": "v"}),
        (
            {str(n): "v" * (PROPERTIES_BYTES_MAX // 8 - 1) for n in range(8)},
            {str(n): "v" * (PROPERTIES_BYTES_MAX // 8) for n in range(8)},
        ),
    ],
    ids=["count", "key", "value", "empty key", "total"],
)
async def test_properties_have_limits(
    site: Site, at_limit: dict[str, str], beyond: dict[str, str]
) -> None:
    tenant = NAMESPACE.partition("/")[0]
    for verb, name in (
        ("SetTenantProperties", tenant),
        ("SetNamespaceProperties", NAMESPACE),
    ):
        taken = await ask(site, verb, pb.SetPropertiesRequest(name=name, properties=at_limit))
        refused = await ask(site, verb, pb.SetPropertiesRequest(name=name, properties=beyond))

        assert taken.status == "OK", taken
        assert refused.reason == "REFUSED"
        assert refused.error is not None
        assert refused.error.rejection_code == "LIMIT_EXCEEDED"

    name = f"{NOWHERE}/properties-{os.urandom(4).hex()}"
    taken_topic, refused_topic = await create(
        site,
        shard_pb.TopicSpec(name=name, properties=at_limit),
        shard_pb.TopicSpec(name=f"{name}-2", properties=beyond),
    )
    assert taken_topic.topic_id
    assert refused_topic.rejection_code == "LIMIT_EXCEEDED"


async def test_partitions_have_a_limit(site: Site) -> None:
    taken, refused, absurd = await create(
        site,
        shard_pb.TopicSpec(name=f"{NOWHERE}/wide", partitions=PARTITIONS_PER_TOPIC_MAX),
        shard_pb.TopicSpec(name=f"{NOWHERE}/wider", partitions=PARTITIONS_PER_TOPIC_MAX + 1),
        shard_pb.TopicSpec(name=f"{NOWHERE}/widest", partitions=2**32 - 1),
    )

    assert taken.topic_id
    assert [refused.rejection_code, absurd.rejection_code] == ["LIMIT_EXCEEDED"] * 2


@pytest.mark.parametrize("length", [1, COMMAND_ID_BYTES - 1, COMMAND_ID_BYTES + 1, 5_000])
async def test_a_command_id_has_its_length_or_none(site: Site, length: int) -> None:
    command_id = bytes(length)
    topic = shard_pb.TopicSpec(name=f"{NOWHERE}/x")
    requests = {
        "CreateTenant": pb.CreateTenantRequest(command_id=command_id, name="x"),
        "DeleteTenant": pb.DeleteRequest(command_id=command_id, name="x"),
        "SetNamespaceProperties": pb.SetPropertiesRequest(command_id=command_id, name="x/y"),
        "CreateTopics": pb.CreateTopicsRequest(command_id=command_id, topics=[topic]),
    }
    for name, request in requests.items():
        check(await ask(site, name, request), f"a command id has {length} bytes")


async def test_pages_begin_where_a_token_of_ours_says_or_nowhere(site: Site) -> None:
    for token in ("no token", "%%%", "QUJD\n", "gA==", "x" * 100_000):
        request = pb.ListObjectsRequest(page_token=token)
        check(await ask(site, "ListTenants", request), "was altered, or comes from elsewhere")

    check(await ask(site, "ListTenants", pb.ListObjectsRequest(parent="x")), "have no parent")
    check(
        await ask(site, "ListTopics", pb.ListObjectsRequest(parent=NAMESPACE, domain="segment")),
        "cannot be listed",
    )


async def test_writes_to_what_is_not_there_say_so(site: Site) -> None:
    refused = {
        "SetTenantProperties": await ask(
            site, "SetTenantProperties", pb.SetPropertiesRequest(name="nobody")
        ),
        "CreateNamespace": await ask(
            site, "CreateNamespace", pb.CreateNamespaceRequest(name="nobody/n")
        ),
    }
    (orphan,) = await create(site, shard_pb.TopicSpec(name="persistent://nobody/n/x"))

    codes = {
        name: outcome.error and outcome.error.rejection_code for name, outcome in refused.items()
    }
    assert codes == {"SetTenantProperties": "NOT_FOUND", "CreateNamespace": "PARENT_NOT_FOUND"}
    assert orphan.rejection_code == "PARENT_NOT_FOUND"
