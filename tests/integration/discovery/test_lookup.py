"""Lookups through a discovery node with fake shards behind it."""

import asyncio

import pytest

from nextgen.client.client import Client
from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, WATCH_TTL_MARGIN_MS
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import discovery_service_pb2 as pb
from tests.integration.discovery.conftest import TIMEOUT_MS, WAIT_S, directory
from tests.support.callers.member_channel import member_channel
from tests.support.discovery.fake_cluster import broker

TOPIC = "persistent://acme/orders/paid"


SHORT_TTL_MS = 2_000
"""For tests that wait until an answer may not be used any more."""

expires = pytest.mark.parametrize("watch_ttl_ms", [SHORT_TTL_MS])


async def test_a_second_lookup_does_not_ask_the_shard(site):
    site.assign(TOPIC)

    first = await site.client.lookup([TOPIC])
    second = await site.client.lookup([TOPIC])

    assert first == second
    assert first[0].broker_id == "broker-1"
    assert site.shard_of(TOPIC).looked_up == [TOPIC]
    counters = await site.client.counters()
    assert counters["names_looked_up"] == 2
    assert counters["answers_from_cache"] == 1
    assert counters["lookups_assigned"] == 1


async def test_every_spelling_of_a_name_gets_the_canonical_answer_from_the_cache(site):
    site.assign("persistent://public/default/x")
    spellings = ["x", "public/default/x", "PERSISTENT://public/default/x"]
    await site.client.lookup(spellings)

    answers = await site.client.lookup(spellings)

    assert {answer.topic for answer in answers} == {"persistent://public/default/x"}
    assert site.shard_of("x").looked_up == ["persistent://public/default/x"]


async def test_a_moved_topic_is_never_answered_with_the_old_owner_once_acknowledged(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    shard = site.shard_of(TOPIC)

    site.assign(TOPIC, "broker-2", "s-2")
    await site.until(lambda: shard.acked["discovery-1"] >= shard.position)

    (answer,) = await site.client.lookup([TOPIC])
    assert (answer.broker_id, answer.epoch) == ("broker-2", 2)


async def test_answers_of_a_session_that_ended_are_not_given(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    shard = site.shard_of(TOPIC)
    # The shard has assigned it anew; its delta is on its way while the directory is faster.
    queue, shard.watchers = dict(shard.watchers), {}
    site.assign(TOPIC, "broker-2", "s-2")

    site.manager.push(directory(broker("broker-1", "s-1", is_live=False)))
    await site.until(lambda: site.node.core.link.view.has_session_ended("broker-1", "s-1"))

    (answer,) = await site.client.lookup([TOPIC])
    assert answer.broker_id == "broker-2"
    shard.watchers = queue


async def test_a_shard_that_still_names_an_ended_session_is_asked_again(site):
    site.assign(TOPIC)
    site.manager.push(directory(broker("broker-1", "s-1", is_live=False)))
    await site.until(lambda: site.node.core.link.view.has_session_ended("broker-1", "s-1"))

    looking = asyncio.create_task(site.client.lookup([TOPIC]))
    shard = site.shard_of(TOPIC)
    await site.until(lambda: shard.looked_up)
    site.assign(TOPIC, "broker-2", "s-2")

    (answer,) = await looking
    assert answer.broker_id == "broker-2"
    assert len(shard.looked_up) >= 2


async def is_asked(site) -> bool:
    """Look the topic up; return whether the shard was asked for it."""
    shard = site.shard_of(TOPIC)
    before = len(shard.looked_up)
    await site.client.lookup([TOPIC])
    return len(shard.looked_up) > before


@expires
async def test_an_answer_is_not_used_while_the_watch_is_silent_and_is_again_behind_it(site):
    site.assign(TOPIC)
    assert await is_asked(site)

    site.server.is_silent = True
    # What was confirmed before the silence: a pause of this machine only makes it longer.
    await asyncio.sleep((SHORT_TTL_MS - WATCH_TTL_MARGIN_MS) / 1_000 + 0.1)
    assert await is_asked(site)
    site.server.is_silent = False

    async with timeout(WAIT_S):
        while await is_asked(site):
            await asyncio.sleep(0.05)


@expires
async def test_an_answer_is_not_used_on_the_word_of_a_leader_that_confirms_nothing(site):
    """1. A leader is replaced and does not know it. 2. Its updates go on. 3. A topic moves."""
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    shard = site.shard_of(TOPIC)
    shard.confirms_nothing = True
    shard.assignments[TOPIC].broker_id = "broker-2"  # No update tells of it.

    async with timeout(WAIT_S):
        while (await site.client.lookup([TOPIC]))[0].broker_id != "broker-2":
            await asyncio.sleep(0.05)

    watch = site.node.core.watches.by_shard[shard.shard_id]
    heard_at = watch.heard_at
    await site.until(lambda: watch.heard_at > heard_at)  # Updates go on.


async def test_a_reset_forgets_what_was_cached(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    shard = site.shard_of(TOPIC)

    shard.position += 100
    shard.log_start = shard.position
    watch = site.node.core.watches.by_shard[shard.shard_id]
    resets = watch.resets
    port = site.server.port
    await site.server.stop()
    await site.server.start(port)
    await site.until(lambda: watch.resets > resets)
    await site.client.lookup([TOPIC])

    assert shard.looked_up == [TOPIC, TOPIC]


async def test_a_watch_resumes_by_position_at_the_same_answers(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    shard = site.shard_of(TOPIC)
    port = site.server.port

    watch = site.node.core.watches.by_shard[shard.shard_id]
    await site.server.stop()
    await site.until(lambda: not watch.is_current)
    await site.server.start(port)
    await site.until_watched()
    await site.client.lookup([TOPIC])

    assert shard.looked_up == [TOPIC]


async def test_a_thousand_lookups_of_one_topic_ask_once(site):
    site.assign(TOPIC)

    answers = await asyncio.gather(*(site.client.lookup([TOPIC]) for _ in range(1_000)))

    assert {answer[0].broker_id for answer in answers} == {"broker-1"}
    assert site.shard_of(TOPIC).looked_up == [TOPIC]


async def test_names_of_one_message_share_a_request_per_shard(site):
    names = [f"persistent://t/n/x{number}" for number in range(300)]
    for name in names:
        site.assign(name)
    site.server.requests.clear()

    answers = await site.client.lookup(names)

    assert [answer.topic for answer in answers] == names
    assert len(site.server.requests) == 3


async def test_bad_names_get_their_reason_beside_good_answers(site):
    site.assign(TOPIC)

    bad, good, none = await site.client.lookup(["a/b", TOPIC, "persistent://acme/orders/no"])

    assert bad.rejection_code == "INVALID_NAME"
    assert "two parts" in bad.message
    assert good.is_found
    assert none.rejection_code == "NOT_FOUND"
    assert not none.retryable


async def test_not_found_is_not_remembered(site):
    await site.client.lookup([TOPIC])
    site.assign(TOPIC)

    (answer,) = await site.client.lookup([TOPIC])

    assert answer.is_found


@pytest.mark.parametrize("count", [0, NAMES_PER_LOOKUP_MAX + 1])
async def test_no_names_and_too_many_are_refused(site, count):
    stub = site.client._nodes
    with pytest.raises(InvalidRequest, match=f"has {count} topics"):
        await stub.call(
            "Lookup",
            pb.LookupRequest(topics=["x"] * count),
            pb.LookupResponse,
            timeout_ms=TIMEOUT_MS,
        )


async def test_as_many_names_as_are_allowed_are_answered(site):
    answers = await site.client.lookup(["x"] * NAMES_PER_LOOKUP_MAX)

    assert len(answers) == NAMES_PER_LOOKUP_MAX


async def test_a_malformed_message_on_a_stream_disturbs_nobody(site):
    site.assign(TOPIC)
    async with member_channel(site.endpoint) as channel:
        call = channel.stream_stream("/nextgen.v1.DiscoveryService/LookupStream")()
        good = pb.LookupRequest(request_id=7, topics=[TOPIC]).SerializeToString()
        unknown_field = good + b"\xfa\x3f\x03abc"
        empty = pb.LookupRequest(request_id=8).SerializeToString()
        responses = {}
        for data in (b"\xff\xff\xff", empty, good, unknown_field):
            await call.write(data)
            response = pb.LookupResponse.FromString(await call.read())
            responses[data] = response
        await call.done_writing()

    assert responses[b"\xff\xff\xff"].error.reason == "INVALID_REQUEST"
    assert responses[empty].error.reason == "INVALID_REQUEST"
    assert responses[empty].request_id == 8
    assert responses[good].answers[0].broker_id == "broker-1"
    assert responses[unknown_field] == responses[good]


async def test_a_slow_shard_does_not_hold_up_other_messages_of_the_stream(site):
    site.assign(TOPIC)
    await site.client.lookup([TOPIC])
    release = asyncio.Event()

    async def wait(_request):
        await release.wait()

    site.server.hook = wait
    async with site.client.lookup_stream() as stream:
        slow = asyncio.create_task(stream.lookup(["persistent://t/n/cold"]))
        await site.server.wait_requests(len(site.server.requests) + 1)
        (fast,) = await stream.lookup([TOPIC])
        assert fast.is_found
        assert not slow.done()
        release.set()
        await slow


async def test_a_shard_without_a_leader_makes_its_names_retryable_and_no_others(site):
    shards = {}
    for number in range(50):
        name = f"persistent://t/n/x{number}"
        shards.setdefault(site.shard_of(name).shard_id, name)

    async def refuse(request):
        if request.shard_id == 1:
            raise Unavailable("no quorum")

    for name in shards.values():
        site.assign(name)
    site.server.hook = refuse
    hasty = Client([site.endpoint], timeout_ms=5_000)
    answers = {answer.topic: answer for answer in await hasty.lookup(list(shards.values()))}
    await hasty.close()

    assert answers[shards[1]].retryable
    # The last attempt ends with what the shard says, or with the client's own time.
    assert answers[shards[1]].rejection_code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    assert answers[shards[2]].is_found
    assert answers[shards[3]].is_found
