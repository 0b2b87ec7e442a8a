"""Writes of a shard: at once while there is room, then by tenants in turn, then refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.client.routing import write_admission
from nextgen.client.routing.write_admission import WriteAdmission, WriteBounds
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.write import (
    WRITE_REQUEST_COST,
    WRITE_RETRY_MS_MAX,
    WRITE_RETRY_MS_MIN,
    WRITES_IN_FLIGHT_MAX,
    WRITES_WAITING_MAX,
    WRITES_WAITING_PER_TENANT_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.world import World
from tests.support.simulated.virtual_time import run_virtual

SINGLES_IN_FLIGHT = -(-WRITES_IN_FLIGHT_MAX // (WRITE_REQUEST_COST + 1))
"""Creates of one topic that fill the room."""


def full(admission: WriteAdmission) -> WriteAdmission:
    assert admission.try_enter(WRITES_IN_FLIGHT_MAX)
    return admission


def let_all_in(admission: WriteAdmission) -> None:
    while admission.requests_waiting:
        admission.leave(admission.cost_in_flight)


async def waiting(admission: WriteAdmission, tenant: str, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(admission.enter([tenant], 1)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


@run_by(run_virtual)
async def test_writes_in_flight_max_is_let_in_and_one_more_waits() -> None:
    admission = WriteAdmission(1)

    entered = [admission.try_enter(1) for _ in range(WRITES_IN_FLIGHT_MAX + 1)]

    assert entered == [True] * WRITES_IN_FLIGHT_MAX + [False]
    (late,) = await waiting(admission, "acme", 1)
    assert admission.requests_waiting == 1
    admission.leave(1)
    await late
    assert admission.cost_in_flight == WRITES_IN_FLIGHT_MAX


@run_by(run_virtual)
async def test_an_operator_sets_how_much_is_under_way_and_how_much_waits() -> None:
    admission = WriteAdmission(1, bounds=WriteBounds(10, 2))
    assert [admission.try_enter(5) for _ in range(3)] == [True, True, False]
    tasks = await waiting(admission, "acme", 2)

    with pytest.raises(Overloaded, match="at most 2"):
        await admission.enter(["acme"], 1)

    let_all_in(admission)
    await asyncio.gather(*tasks)


@run_by(run_virtual)
async def test_a_request_that_is_larger_than_the_room_gets_in_alone() -> None:
    admission = WriteAdmission(1)

    assert admission.try_enter(10 * WRITES_IN_FLIGHT_MAX)
    assert not admission.try_enter(1)


@run_by(run_virtual)
async def test_nobody_passes_those_who_wait() -> None:
    admission = full(WriteAdmission(1))
    (first,) = await waiting(admission, "acme", 1)
    admission.leave(WRITES_IN_FLIGHT_MAX)
    assert admission.requests_waiting == 0

    full(admission)
    (second,) = await waiting(admission, "acme", 1)

    assert first.done()
    assert not second.done()
    let_all_in(admission)
    await second


@run_by(run_virtual)
async def test_a_tenants_first_write_waits_for_one_of_each_other_tenant() -> None:
    admission = full(WriteAdmission(1))
    noisy = await waiting(admission, "noisy", 500)
    other = await waiting(admission, "other", 500)
    (quiet,) = await waiting(admission, "quiet", 1)

    admission.leave(3)
    await asyncio.sleep(0)

    assert quiet.done()
    assert sum(task.done() for task in noisy) == 2 - sum(task.done() for task in other)
    let_all_in(admission)
    await asyncio.gather(*noisy, *other, quiet)


@pytest.mark.parametrize("tenants", [("quiet", "noisy"), ("noisy", "quiet")])
@run_by(run_virtual)
async def test_a_write_for_two_tenants_waits_for_a_turn_of_each(
    *, tenants: tuple[str, str]
) -> None:
    """1. A tenant's backlog waits. 2. A write comes that names another tenant as well. 3. It is
    admitted behind the backlog, in whatever order it names them, and holds nothing before."""
    admission = full(WriteAdmission(1))
    backlog = await waiting(admission, "noisy", 50)
    mixed = asyncio.create_task(admission.enter(tenants, 9))
    await asyncio.sleep(0)
    (quiet,) = await waiting(admission, "quiet", 1)

    admission.leave(40)
    await asyncio.sleep(0)
    assert (quiet.done(), mixed.done()) == (True, False)
    assert admission.cost_in_flight == WRITES_IN_FLIGHT_MAX
    admission.leave(13)
    await asyncio.sleep(0)

    assert all(task.done() for task in backlog)
    await mixed
    assert admission.requests_waiting == 0


@run_by(run_virtual)
async def test_a_write_for_two_tenants_is_refused_if_one_of_them_has_too_much_waiting() -> None:
    admission = full(WriteAdmission(1))
    noisy = await waiting(admission, "noisy", WRITES_WAITING_PER_TENANT_MAX)

    for tenants in (["noisy", "quiet"], ["quiet", "noisy", "other"]):
        with pytest.raises(Overloaded, match="tenant noisy"):
            await admission.enter(tenants, 1)

    assert admission.requests_waiting == WRITES_WAITING_PER_TENANT_MAX
    let_all_in(admission)
    await asyncio.gather(*noisy)


@run_by(run_virtual)
async def test_writes_waiting_per_tenant_max_wait_and_one_more_is_refused_but_not_of_others() -> (
    None
):
    admission = full(WriteAdmission(1))
    noisy = await waiting(admission, "noisy", WRITES_WAITING_PER_TENANT_MAX)
    assert admission.requests_waiting == WRITES_WAITING_PER_TENANT_MAX

    with pytest.raises(Overloaded, match="tenant noisy wait for shard 1") as refused:
        await admission.enter(["noisy"], 1)

    assert refused.value.retry_after_ms == WRITE_RETRY_MS_MIN
    (quiet,) = await waiting(admission, "quiet", 1)
    assert not quiet.done()
    let_all_in(admission)
    await asyncio.gather(*noisy, quiet)


@run_by(run_virtual)
async def test_writes_waiting_max_wait_in_all_and_one_more_is_refused() -> None:
    admission = full(WriteAdmission(1))
    tasks = []
    for number in range(WRITES_WAITING_MAX // WRITES_WAITING_PER_TENANT_MAX):
        tasks += await waiting(admission, f"t-{number}", WRITES_WAITING_PER_TENANT_MAX)
    assert admission.requests_waiting == WRITES_WAITING_MAX

    with pytest.raises(Overloaded):
        await admission.enter(["one-more"], 1)

    let_all_in(admission)
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("waited_ms", "after_ms"), [(0, WRITE_RETRY_MS_MIN), (300, 300), (60_000, WRITE_RETRY_MS_MAX)]
)
@run_by(run_virtual)
async def test_a_refused_write_comes_back_after_as_long_as_others_waited(
    *, waited_ms: int, after_ms: int
) -> None:
    admission = full(WriteAdmission(1))
    noisy = await waiting(admission, "noisy", WRITES_WAITING_PER_TENANT_MAX)
    await asyncio.sleep(waited_ms / 1_000)
    admission.leave(1)
    noisy += await waiting(admission, "noisy", 1)

    with pytest.raises(Overloaded) as refused:
        await admission.enter(["noisy"], 1)

    assert refused.value.retry_after_ms == pytest.approx(after_ms, abs=1)
    let_all_in(admission)
    await asyncio.gather(*noisy)


@run_by(run_virtual)
async def test_a_caller_that_gives_up_leaves_its_place_to_the_next() -> None:
    admission = full(WriteAdmission(1))
    gone, just_admitted, next_one = await waiting(admission, "acme", 3)
    gone.cancel()
    await asyncio.sleep(0)
    assert admission.requests_waiting == 2

    admission.leave(1)
    just_admitted.cancel()  # Its turn has come, and it has not run since.
    await asyncio.gather(gone, just_admitted, return_exceptions=True)

    assert next_one.done()
    assert admission.cost_in_flight == WRITES_IN_FLIGHT_MAX
    await next_one


class Steps:
    """Requests that enter, leave and give up, in any order."""

    def __init__(self) -> None:
        self.admission = WriteAdmission(1)
        self.inside: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def _enter(self, tenants: str, cost: int) -> None:
        await self.admission.enter(tuple(tenants), cost)
        self.inside.append(cost)

    def step(self, kind: str, tenant: str, cost: int) -> None:
        if kind == "enters":
            self.tasks.append(asyncio.create_task(self._enter(tenant, cost)))
        elif kind == "leaves" and self.inside:
            self.admission.leave(self.inside.pop(0))
        elif kind == "gives up" and self.tasks:
            self.tasks[cost % len(self.tasks)].cancel()

    async def end(self) -> None:
        """Have everybody enter and leave."""
        while not all(task.done() for task in self.tasks) or self.inside:
            self.step("leaves", "", 0)
            await asyncio.sleep(0)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["enters", "leaves", "gives up"]),
            st.sampled_from(["a", "b", "c", "ab", "bca"]),
            st.integers(1, 900),
        ),
        max_size=80,
    )
)
def test_what_entered_and_left_adds_up_when_callers_give_up(
    steps: list[tuple[str, str, int]],
) -> None:
    async def scenario() -> None:
        world = Steps()
        for kind, tenant, cost in steps:
            world.step(kind, tenant, cost)
            if cost % 2:
                await asyncio.sleep(0)

        await world.end()

        assert (world.admission.cost_in_flight, world.admission.requests_waiting) == (0, 0)

    run_virtual(scenario)


# In a shard -------------------------------------------------------------------------------------


async def parents(shard: Harness, *tenants: str) -> None:
    for tenant in tenants:
        await shard.execute(create_tenant=pb.CreateTenant(name=tenant))
        await shard.execute(create_namespace=pb.CreateNamespace(name=f"{tenant}/n"))
        await shard.execute(create_topics=creates(tenant, "first"))


def creates(tenant: str, name: str) -> pb.CreateTopics:
    return pb.CreateTopics(topics=[pb.TopicSpec(name=f"persistent://{tenant}/n/{name}")])


def flood(shard: Harness, tenant: str, count: int) -> list[asyncio.Task[pb.CommandResult]]:
    return [
        asyncio.create_task(shard.execute(create_topics=creates(tenant, f"t-{number}")))
        for number in range(count)
    ]


@run_by(in_shard)
async def test_a_tenants_create_is_not_behind_the_backlog_of_another(shard: Harness) -> None:
    """1. The log stands still, and a tenant sends twice what has room. 2. Another creates a topic.
    3. The log goes on: the topic is written behind what was under way, not behind the backlog."""
    await parents(shard, "noisy", "quiet")
    before = shard.leader.state.position
    shard.log.hold_commits()
    noisy = flood(shard, "noisy", 2 * SINGLES_IN_FLIGHT)
    await asyncio.sleep(0.01)
    quiet = asyncio.create_task(shard.execute(create_topics=creates("quiet", "new")))
    await asyncio.sleep(0.01)

    shard.log.release_commits()
    result = await quiet

    assert result.position - before <= SINGLES_IN_FLIGHT + 2
    await asyncio.gather(*noisy)
    assert shard.leader.state.position - before == 2 * SINGLES_IN_FLIGHT + 1


@run_by(in_shard)
async def test_a_batch_that_names_a_quiet_tenant_first_is_behind_the_backlog(
    shard: Harness,
) -> None:
    await parents(shard, "noisy", "quiet")
    before = shard.leader.state.position
    shard.log.hold_commits()
    noisy = flood(shard, "noisy", 3 * SINGLES_IN_FLIGHT)
    await asyncio.sleep(0.01)
    names = [f"persistent://{tenant}/n/mixed" for tenant in ("quiet", "noisy")]
    topics = [pb.TopicSpec(name=name) for name in names]
    mixed = asyncio.create_task(shard.execute(create_topics=pb.CreateTopics(topics=topics)))
    await asyncio.sleep(0.01)

    shard.log.release_commits()
    result = await mixed

    assert result.position - before > 2 * SINGLES_IN_FLIGHT
    await asyncio.gather(*noisy)


@run_by(in_shard)
async def test_callers_that_give_up_make_no_room_before_their_writes_are_in_the_log(
    shard: Harness,
) -> None:
    await parents(shard, "noisy")
    before = shard.leader.state.position
    shard.log.hold_commits()
    for task in flood(shard, "noisy", 3 * SINGLES_IN_FLIGHT):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0.01)

    shard.log.release_commits()
    await asyncio.sleep(0.1)

    assert shard.leader.state.position - before <= SINGLES_IN_FLIGHT


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_create_that_reads_nothing_keeps_its_room_until_it_is_in_the_log(
    gives_up: bool,
) -> None:
    world = World(shards=1)
    (shard,) = world.shards.values()
    await world.create_tenant("noisy")
    await world.create_namespace("noisy/n")
    await world.create_topic("persistent://noisy/n/first")
    before = shard.state.position
    shard.log.hold_commits()
    tasks = []
    for number in range(2 * SINGLES_IN_FLIGHT):
        create = world.create_topic(f"persistent://noisy/n/t-{number}")
        tasks.append(asyncio.ensure_future(create))
    await asyncio.sleep(0)
    for task in tasks if gives_up else ():
        task.cancel()
        await asyncio.sleep(0)
    shard.log.release_commits()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert shard.state.position - before == SINGLES_IN_FLIGHT * (1 if gives_up else 2)
    world.close()


@run_by(in_shard)
async def test_writes_that_wait_when_the_term_ends_are_sent_to_the_next_leader(
    shard: Harness,
) -> None:
    await parents(shard, "noisy")
    shard.log.hold_commits()
    noisy = flood(shard, "noisy", SINGLES_IN_FLIGHT + 10)
    await asyncio.sleep(0.01)

    shard.log.lose_leadership()
    failures = await asyncio.gather(*noisy, return_exceptions=True)

    assert [type(each) for each in failures[-10:]] == [NotLeader] * 10


@run_by(in_shard)
async def test_more_than_a_tenant_may_have_waiting_is_refused_with_the_time_to_come_back(
    shard: Harness,
) -> None:
    await parents(shard, "noisy")
    shard.log.hold_commits()
    room = SINGLES_IN_FLIGHT + WRITES_WAITING_PER_TENANT_MAX
    noisy = flood(shard, "noisy", room)
    await asyncio.sleep(0.01)

    request = pb.ShardRequest(
        shard_id=1,
        execute=pb.ExecuteRequest(commands=[pb.Command(create_topics=creates("noisy", "x"))]),
    )
    refused = from_detail((await shard.dispatcher.answer(request)).error)

    assert isinstance(refused, Overloaded)
    assert refused.retry_after_ms >= WRITE_RETRY_MS_MIN
    assert shard.node_metrics.write_refusals.labels("1")._value.get() == 1
    shard.log.release_commits()
    await asyncio.gather(*noisy)


def test_orders_to_gates_are_not_refused_when_too_many_writes_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_admission, "WRITES_WAITING_MAX", 5)

    async def scenario(shard: Harness) -> None:
        await parents(shard, "noisy", "quiet")
        shard.log.hold_commits()
        noisy = flood(shard, "noisy", SINGLES_IN_FLIGHT + 5)
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded):
            await shard.execute(create_topics=creates("quiet", "new"))

        close = pb.CloseParentGate(
            parent_kind="namespace", parent_name="quiet/n", parent_id="i", attempt=1
        )
        order = asyncio.create_task(shard.execute(close_parent_gate=close))
        await asyncio.sleep(0.01)

        shard.log.release_commits()
        assert (await order).rejection_code == "NOT_EMPTY"
        await asyncio.gather(*noisy)

    in_shard(tmp_path, scenario)
