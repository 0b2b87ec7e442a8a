"""``shards split`` and its kin: what is asked, what is shown, and how a plan is followed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import typer

from nextgen.cli.shards import plan_commands, slot_plans
from nextgen.kernel.errors import DeadlineExceeded, InvalidRequest, Refused, Unavailable
from nextgen.kernel.limits.cluster import SLOT_COUNT
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb


def plan(phase: str, slots_left: int = 0, **fields: Any) -> cluster_pb.SlotPlan:
    changed = events_pb.PlanChanged(
        plan_id=4,
        kind="move_slots",
        phase=phase,
        wanted=[events_pb.SlotRun(first=0, last=9, shard_id=2)],
        reason=fields.pop("reason", ""),
        added=fields.pop("new", ()),
    )
    return cluster_pb.SlotPlan(
        plan=changed, slots=10, slots_left=slots_left, shard_map_version=7, **fields
    )


class Manager:
    """Answers as the cluster manager: the plan is a step further at each look."""

    def __init__(self, *steps: cluster_pb.SlotPlan) -> None:
        self.steps = list(steps)
        self.asked: list[Any] = []
        self.shards = [cluster_pb.SlotShard(shard_id=1, slots=SLOT_COUNT, leader="a")]

    async def PlanSlots(self, request: Any, **_options: Any) -> Any:
        self.asked.append(request)
        return cluster_pb.PlanSlotsResponse(plan=self.steps[0])

    async def GetPlans(self, request: Any, **_options: Any) -> Any:
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        return cluster_pb.GetPlansResponse(
            plans=[step],
            shards=self.shards,
        )

    async def StopPlan(self, request: Any, **_options: Any) -> Any:
        self.asked.append(request)
        return cluster_pb.StopPlanResponse(plan=self.steps[0])


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Manager]:
    def use(*steps: cluster_pb.SlotPlan) -> Manager:
        fake = Manager(*steps)

        async def ask(_endpoints: object, call: Callable[[Any], Awaitable[Any]]) -> Any:
            return await call(fake)

        monkeypatch.setattr(slot_plans, "ask_manager_leader", ask)
        monkeypatch.setattr(slot_plans, "POLL_MS", 1)
        monkeypatch.setattr(plan_commands, "endpoints_of", lambda *_: ("d:1",))
        return fake

    return use


def test_a_plan_is_followed_to_its_end(manager, capsys) -> None:
    fake = manager(plan("running", 10), plan("running", 4), plan("done"))

    plan_commands.move_slots("0-9", 2, timeout_ms=5_000)

    (asked,) = fake.asked
    assert (asked.kind, asked.into_shard, asked.dry_run) == ("move_slots", 2, False)
    assert [(each.first, each.last) for each in asked.ranges] == [(0, 9)]
    assert asked.request_id
    assert "plan 4 (move slots) is done, 10 slots moved, map 7" in capsys.readouterr().out


def test_a_dry_run_shows_what_would_move_and_follows_nothing(manager, capsys) -> None:
    placement = events_pb.ShardPlacement(shard_id=3, replicas=["a", "b"])
    dry = plan("running", 10, rows_left=500, moves_left=1, added=[placement])
    fake = manager(dry)

    plan_commands.split(1, dry_run=True)

    assert fake.asked[0].dry_run
    shown = capsys.readouterr().out
    assert "shard 3 would be new, on a, b" in shown
    assert "10 slots in 1 move, about 500 rows" in shown
    assert "0-9" in shown


def test_a_dry_run_of_scattered_slots_is_one_line_for_each_shard(manager, capsys) -> None:
    scattered = plan("running", 10)
    scattered.plan.wanted.extend(
        events_pb.SlotRun(first=slot, last=slot, shard_id=5) for slot in range(20, 40, 2)
    )
    manager(scattered)

    plan_commands.rebalance(dry_run=True)

    shown = capsys.readouterr().out
    assert "20, 22, 24, 26, 28, … 10 ranges" in shown
    assert "30" not in shown


def test_json_has_the_whole_plan(manager, capsys) -> None:
    manager(plan("running", 10), plan("done"))

    plan_commands.rebalance(timeout_ms=5_000, json_output=True)

    shown = json.loads(capsys.readouterr().out)
    assert (shown["plan"]["phase"], shown["slots"], shown["slots_left"]) == ("done", 10, 0)


def test_without_waiting_the_plan_goes_on(manager, capsys) -> None:
    manager(plan("running", 10, new=[5, 6]))

    plan_commands.add(2, no_wait=True)

    assert "is running, 10 slots left, new: shard 5, 6" in capsys.readouterr().out


async def test_a_plan_that_was_stopped_is_an_error_with_the_reason(manager) -> None:
    manager(plan("stopping", 4), plan("stopped", 4, reason="the disk is full"))

    with pytest.raises(Refused, match="4 slots left: the disk is full"):
        await slot_plans.follow(("d:1",), 4, 5_000, lambda _: None)


async def test_waiting_ends_but_not_the_plan(manager) -> None:
    manager(plan("running", 4, waits_for="shard 3 has no leader"))

    with pytest.raises(DeadlineExceeded, match="shard 3 has no leader"):
        await slot_plans.follow(("d:1",), 4, 20, lambda _: None)


async def test_an_election_in_between_is_waited_for(
    manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager(plan("done"))
    answers = slot_plans.get_plans
    failures = [Unavailable("an election"), Unavailable("an election")]

    async def sometimes(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await answers(*arguments)

    monkeypatch.setattr(slot_plans, "get_plans", sometimes)

    assert (await slot_plans.follow(("d:1",), 4, 5_000, lambda _: None)).plan.phase == "done"


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the replicas of a shard answer about the readers of its log."""
    answers: dict[str, Any] = {}

    async def ask(_endpoints: object, _shard_id: int) -> dict[str, Any]:
        return answers

    monkeypatch.setattr(slot_plans, "log_readers", ask)
    return answers


def test_a_shard_whose_log_has_readers_is_removed_by_force_only(manager, readers, capsys) -> None:
    fake = manager(plan("done"))
    fake.shards = [cluster_pb.SlotShard(shard_id=1, slots=0)]
    for node, position in (("a", 40), ("b", 44)):
        reader = shard_pb.LogReader(reader_id="exporter", position=position)
        readers[node] = shard_pb.PinLogResponse(readers=[reader])
    readers["c"] = Unavailable("it is down")

    with pytest.raises(typer.Exit):
        plan_commands.remove(1, no_wait=True)
    assert "exporter at 44" in capsys.readouterr().err
    assert fake.asked == []

    plan_commands.remove(1, force=True, no_wait=True)
    readers.clear()
    readers["a"] = shard_pb.PinLogResponse()
    plan_commands.remove(1, no_wait=True)
    assert [each.kind for each in fake.asked] == ["remove_shard"] * 2


def test_a_shard_of_whose_readers_nothing_is_known_is_not_removed(manager, readers) -> None:
    fake = manager(plan("done"))
    fake.shards = [cluster_pb.SlotShard(shard_id=1, slots=0)]
    readers["a"] = Unavailable("it is down")

    with pytest.raises(typer.Exit):
        plan_commands.remove(1, no_wait=True)

    assert fake.asked == []


def test_a_shard_with_slots_is_retired_whoever_reads_its_log(manager, readers) -> None:
    fake = manager(plan("running", 4))
    readers["a"] = shard_pb.PinLogResponse(readers=[shard_pb.LogReader(reader_id="exporter")])

    plan_commands.remove(1, no_wait=True)

    assert [each.kind for each in fake.asked] == ["remove_shard"]


def test_plans_shards_and_stops_are_shown(manager, capsys) -> None:
    fake = manager(plan("stopping", 4, reason="enough"))

    plan_commands.plans()
    plan_commands.list_shards()
    plan_commands.stop(4)

    shown = capsys.readouterr().out
    assert "move slots" in shown
    assert "enough" in shown
    assert "16,384" in shown
    assert "plan 4 is stopping, 4 slots left where they are" in shown
    assert fake.asked[0].plan_id == 4


def test_slots_are_parsed() -> None:
    assert plan_commands.parse_slots("9000, 0-4095,5000-5000") == [
        (0, 4_095),
        (5_000, 5_000),
        (9_000, 9_000),
    ]


@pytest.mark.parametrize(
    "given", ["", "x", "5-", "-5", "9-5", f"0-{SLOT_COUNT}", "1,1", "0-5,5-9", "1,,2", "½"]
)
def test_malformed_slots_are_refused(given: str) -> None:
    with pytest.raises(InvalidRequest):
        plan_commands.parse_slots(given)
