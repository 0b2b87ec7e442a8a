"""Shadow topics through the client: what is created, and how the list of a source changes."""

from __future__ import annotations

import pytest

from nextgen.client.discovery.shadow_topics import ShadowTopics
from nextgen.client.model import CreatedTopic, NewTopic, ObjectPolicies, Topic, Written
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import NO_POLICIES, Policies
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY

SOURCE = "persistent://acme/orders/source"
FIRST, SECOND, THIRD = (f"persistent://acme/orders/shadow-{number}" for number in range(3))


class FakeClient(ShadowTopics):
    """One source with partitions, and its policies; ``others`` change them meanwhile."""

    def __init__(self) -> None:
        self.topics = {SOURCE: Topic(SOURCE, "id", 4, {}, 1, "ns", 0)}
        self.created: list[NewTopic] = []
        self.rejection = ""
        self.policies = NO_POLICIES
        self.version = 0
        self.others: list[Policies] = []

    async def get_topic(self, name: str, *, min_position: int = 0) -> Topic | None:
        return self.topics.get(name.replace("acme/orders", "persistent://acme/orders", 1)) or (
            self.topics.get(name)
        )

    async def create_topics(self, topics):
        self.created += topics
        return [CreatedTopic(topics[0].name, "id-2", self.rejection, "why")]

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        return ObjectPolicies(self.policies, self.version)

    async def set_policies(self, name, policies, *, expected_version=None) -> Written:
        if self.others:
            self.policies, self.version = self.others.pop(), self.version + 1
        if expected_version != self.version:
            raise Refused(RejectionCode.VERSION_MISMATCH, "changed meanwhile")
        self.policies, self.version = policies, self.version + 1
        return Written("id", self.version, 1, 1)


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


async def test_shadow_has_the_partitions_of_its_source_and_is_listed(client: FakeClient):
    client.policies = Policies(message_ttl_ms=5, shadow_topics=(FIRST,))

    created = await client.create_shadow("acme/orders/shadow-1", "acme/orders/source", {"a": "b"})

    assert created.topic_id == "id-2"
    properties = {"a": "b", SHADOW_SOURCE_PROPERTY: SOURCE}
    assert client.created == [NewTopic("acme/orders/shadow-1", 4, properties)]
    assert client.policies == Policies(message_ttl_ms=5, shadow_topics=(FIRST, SECOND))


async def test_shadow_is_listed_only_if_wanted(client: FakeClient):
    await client.create_shadow(FIRST, SOURCE, listed=False)

    assert client.policies == NO_POLICIES


async def test_refused_creation_lists_nothing(client: FakeClient):
    client.rejection = RejectionCode.NOT_ALLOWED

    with pytest.raises(Refused, match="why"):
        await client.create_shadow(FIRST, SOURCE)

    assert client.policies == NO_POLICIES


async def test_absent_source_is_not_found(client: FakeClient):
    with pytest.raises(Refused) as refused:
        await client.create_shadow(FIRST, "persistent://acme/orders/absent")

    assert (refused.value.code, client.created) == (RejectionCode.NOT_FOUND, [])


async def test_list_is_set_read_and_reduced(client: FakeClient):
    await client.set_shadows(SOURCE, ["acme/orders/shadow-0", SECOND, FIRST, THIRD])
    assert await client.get_shadows(SOURCE) == [FIRST, SECOND, THIRD]

    await client.remove_shadows(SOURCE, ["acme/orders/shadow-1"])
    assert await client.get_shadows(SOURCE) == [FIRST, THIRD]

    await client.remove_shadows(SOURCE)
    assert client.policies == NO_POLICIES


async def test_changes_of_others_are_kept(client: FakeClient):
    client.others = [Policies(message_ttl_ms=7, shadow_topics=(SECOND,))]

    await client.create_shadow(FIRST, SOURCE)

    assert client.policies == Policies(message_ttl_ms=7, shadow_topics=(SECOND, FIRST))


async def test_change_that_others_overtake_each_time_is_refused(client: FakeClient):
    client.others = [NO_POLICIES] * 5

    with pytest.raises(Refused) as refused:
        await client.set_shadows(SOURCE, [FIRST])

    assert refused.value.code == RejectionCode.VERSION_MISMATCH
    assert (client.others, client.policies) == ([], NO_POLICIES)


async def test_source_is_read_from_the_properties(client: FakeClient):
    client.topics[FIRST] = Topic(FIRST, "id", 0, {SHADOW_SOURCE_PROPERTY: SOURCE}, 1, "ns", 0)

    assert await client.get_shadow_source(FIRST) == SOURCE
    assert await client.get_shadow_source(SOURCE) == ""
    with pytest.raises(Refused):
        await client.get_shadow_source(SECOND)


async def test_name_that_no_topic_has_is_not_sent(client: FakeClient):
    for names in (["a b/c"], [""]):
        with pytest.raises(InvalidRequest):
            await client.set_shadows(SOURCE, names)
        with pytest.raises(InvalidRequest):
            await client.remove_shadows(SOURCE, names)
