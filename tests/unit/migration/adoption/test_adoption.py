"""Namespaces that are handed over and back between two brokers that hear of it at different times.

The world here obeys what the real one promises: a broker's topics belong to it by bundle until it
has heard of the property, and by assignment from then on.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from nextgen.kernel.errors import DeadlineExceeded, Refused
from nextgen.migration.adoption.adoption import SETTLE_S_MAX, Adoption, Handed, Progress
from nextgen.migration.adoption.pace import Pace
from nextgen.migration.adoption.ports import OpenTopic, OpenTopics, Outcome

NAMESPACE = "acme/orders"
ONE, TWO = "stock-1", "stock-2"
THERE = {ONE: "b1:8080", TWO: "b2:8080"}
NAMES = [f"persistent://{NAMESPACE}/topic-{number}" for number in range(8)]


class Killed(Exception):
    """The command's process died in front of this call."""


class World:
    """Both clusters. Topics with even numbers have their bundle at the first broker."""

    def __init__(self, *, hears_late: int = 0) -> None:
        self.bundles = {name: (ONE, TWO)[number % 2] for number, name in enumerate(NAMES)}
        self.open_at = {name: self.bundles[name] for name in NAMES}
        self.assigned_to: dict[str, str] = {}
        self.known = set(NAMES)
        self.forbidden: set[tuple[str, str]] = set()
        self.by_topic = False
        self.heard = {ONE: False, TWO: False}
        self.late = {ONE: 0, TWO: 0}
        self.hears_late = hears_late
        """So many looks of the second broker are without the change."""
        self.interruptions: Counter[str] = Counter()
        self.before_change: Callable[[], None] = lambda: None
        self.keeps_assigning: set[str] = set()
        self.created: list[str] = []
        self.full = 0
        """So many moves find no room."""
        self.calls = 0
        self.dies_at = 0
        self.now = 0.0
        self.shown: list[Progress] = []

    def _called(self) -> None:
        self.calls += 1
        if self.calls == self.dies_at:
            raise Killed

    # Placement ---------------------------------------------------------------------------------

    async def set_by_topic(self, namespace: str, *, by_topic: bool) -> None:
        self._called()
        assert namespace == NAMESPACE
        self.before_change()
        if by_topic != self.by_topic:
            self.late = {ONE: 0, TWO: self.hears_late}
        self.by_topic = by_topic

    # Brokers -----------------------------------------------------------------------------------

    def owner(self, topic: str, seen_by: str) -> str:
        if self.heard[seen_by]:
            return self.assigned_to.get(topic, "")
        return self.bundles.get(topic, "")

    async def open_topics(self, broker_id: str, namespace: str) -> OpenTopics:
        self._called()
        if self.heard[broker_id] != self.by_topic:
            if not self.late[broker_id]:
                self.heard[broker_id] = self.by_topic
            self.late[broker_id] -= 1
        return OpenTopics(
            self.heard[broker_id],
            tuple(
                OpenTopic(
                    topic,
                    self.owner(topic, broker_id) == broker_id,
                    THERE.get(self.bundles.get(topic, ""), ""),
                )
                for topic, at in self.open_at.items()
                if at == broker_id
            ),
        )

    async def claim(self, broker_id: str, topics: Sequence[str]) -> list[Outcome]:
        self._called()
        outcomes = []
        for topic in topics:
            if topic not in self.known:
                outcomes.append(Outcome(topic, "", "NOT_FOUND", "there is no such topic"))
                continue
            if topic not in self.assigned_to:
                free = [
                    each for each in (broker_id, ONE, TWO) if (topic, each) not in self.forbidden
                ]
                if not free:
                    outcomes.append(Outcome(topic, "", "NO_CAPACITY", "no broker may have it"))
                    continue
                self.assigned_to[topic] = free[0]
            outcomes.append(Outcome(topic, self.assigned_to[topic]))
        return outcomes

    async def close_foreign(self, broker_id: str, topics: Sequence[str]) -> int:
        self._called()
        failed = 0
        for topic in topics:
            if self.open_at[topic] != broker_id or self.owner(topic, broker_id) == broker_id:
                continue
            if not self.heard[broker_id] and topic not in self.bundles:
                self.bundles[topic] = TWO  # Pulsar assigns a bundle that nobody has.
            if owner := self.owner(topic, broker_id):
                self._reopen(topic, owner)
            else:
                failed += 1
        return failed

    def _reopen(self, topic: str, owner: str) -> None:
        if self.open_at.get(topic, owner) != owner:
            self.interruptions[topic] += 1
            self.open_at[topic] = owner

    # Cluster -----------------------------------------------------------------------------------

    async def move(self, moves: Mapping[str, str]) -> list[Outcome]:
        self._called()
        outcomes = []
        for topic, target in moves.items():
            if self.full:
                self.full -= 1
                outcomes.append(Outcome(topic, "", "NO_CAPACITY", "no capacity left"))
                continue
            if (topic, target) in self.forbidden:
                outcomes.append(Outcome(topic, "", "NOT_ALLOWED", "a rule forbids it"))
                continue
            source = self.assigned_to[topic]
            self.assigned_to[topic] = target
            if self.heard[source] and self.open_at.get(topic) == source:
                self._reopen(topic, target)
            outcomes.append(Outcome(topic, target))
        return outcomes

    async def assigned(self, namespace: str) -> list[str]:
        self._called()
        return sorted(self.assigned_to)

    async def unload(self, topics: Sequence[str]) -> None:
        self._called()
        for topic in topics:
            broker = self.assigned_to.pop(topic)
            assert not self.heard[broker], "a broker closes what it serves by assignment"
            if topic in self.keeps_assigning:
                self.assigned_to[topic] = broker

    async def create(self, topics: Sequence[str]) -> None:
        self._called()
        self.created += topics
        self.known.update(topics)

    # ------------------------------------------------------------------------------------------

    def adoption(self) -> Adoption:
        async def sleep(seconds: float) -> None:
            self.now += seconds

        return Adoption(
            NAMESPACE,
            THERE,
            placement=self,
            at_brokers=self,
            cluster=self,
            pace=Pace(1_000, clock=lambda: self.now, sleep=sleep),
            on_progress=self.shown.append,
            clock=lambda: self.now,
            sleep=sleep,
        )

    def assert_placed_by_topic(self) -> None:
        assert self.by_topic
        assert self.heard == {ONE: True, TWO: True}
        assert self.open_at.items() <= self.assigned_to.items()

    def assert_placed_by_bundle(self) -> None:
        assert not self.by_topic
        assert self.heard == {ONE: False, TWO: False}
        assert self.open_at.items() <= self.bundles.items()
        assert self.assigned_to == {}


@pytest.mark.parametrize("hears_late", [0, 1, 3])
async def test_open_topics_stay_where_they_are(hears_late: int) -> None:
    world = World(hears_late=hears_late)
    before = dict(world.open_at)

    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert handed == Handed(kept=len(NAMES))
    assert world.open_at == before
    assert not world.interruptions


async def test_a_topic_that_discovery_assigned_elsewhere_is_moved_to_where_it_is_open() -> None:
    world = World()
    world.assigned_to[NAMES[0]] = TWO

    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert handed == Handed(kept=len(NAMES))
    assert world.assigned_to[NAMES[0]] == ONE
    assert not world.interruptions


async def test_a_topic_waits_until_its_broker_has_room_for_it() -> None:
    world = World()
    world.assigned_to |= {NAMES[0]: TWO, NAMES[2]: TWO}
    world.full = 3

    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert handed == Handed(kept=len(NAMES))
    assert not world.interruptions


async def test_a_broker_that_has_no_room_in_the_end_gives_a_topic_away() -> None:
    world = World()
    world.assigned_to[NAMES[0]] = TWO
    world.full = 1_000

    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert handed.moved == 1
    assert world.interruptions == {NAMES[0]: 1}


async def test_a_topic_that_may_not_stay_changes_its_broker_once() -> None:
    world = World(hears_late=2)
    world.forbidden.add((NAMES[0], ONE))

    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert handed == Handed(kept=len(NAMES) - 1, moved=1)
    assert world.interruptions == {NAMES[0]: 1}


async def test_nothing_changes_for_clients_if_an_open_topic_cannot_be_assigned() -> None:
    world = World()
    world.forbidden |= {(NAMES[0], ONE), (NAMES[0], TWO)}

    with pytest.raises(Refused, match=r"1 open topics cannot be assigned.*no broker may have it"):
        await world.adoption().hand_over()

    assert not world.by_topic
    assert not world.interruptions


async def test_an_open_topic_that_no_listing_names_is_created() -> None:
    world = World()
    world.known.discard(NAMES[0])

    await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert world.created == [NAMES[0]]


async def test_an_absent_partition_is_not_created_as_a_topic() -> None:
    world = World()
    partition = f"{NAMES[0]}-partition-3"
    world.bundles[partition] = world.open_at[partition] = ONE

    with pytest.raises(Refused, match="no such topic"):
        await world.adoption().hand_over()

    assert world.created == []


async def test_a_topic_that_is_opened_meanwhile_is_kept_or_sent_to_its_broker() -> None:
    """Clients come between the claims and the change: one through discovery, one through Pulsar."""
    world = World()
    late, elsewhere = f"{NAMES[0]}-late", f"{NAMES[0]}-elsewhere"

    def clients_come() -> None:
        for name in (late, elsewhere):
            world.known.add(name)
            world.bundles[name] = world.open_at[name] = ONE
        world.assigned_to[elsewhere] = TWO

    world.before_change = clients_come
    handed = await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert (world.open_at[late], world.open_at[elsewhere]) == (ONE, TWO)
    assert world.interruptions == {elsewhere: 1}
    assert handed.moved == 1


async def test_a_broker_that_does_not_hear_of_the_change_is_not_waited_for_for_ever() -> None:
    world = World(hears_late=1_000_000)

    with pytest.raises(DeadlineExceeded, match="the same command goes on"):
        await world.adoption().hand_over()

    assert SETTLE_S_MAX <= world.now < SETTLE_S_MAX + 2


async def test_handing_over_again_does_nothing() -> None:
    world = World()
    await world.adoption().hand_over()
    assignments = dict(world.assigned_to)

    assert await world.adoption().hand_over() == Handed()

    assert world.assigned_to == assignments
    assert not world.interruptions


@pytest.mark.parametrize("hears_late", [0, 1, 3])
async def test_topics_that_never_moved_stay_when_they_are_handed_back(hears_late: int) -> None:
    world = World(hears_late=hears_late)
    await world.adoption().hand_over()

    handed = await world.adoption().hand_back()

    world.assert_placed_by_bundle()
    assert handed == Handed(kept=len(NAMES), released=len(NAMES))
    assert not world.interruptions


async def test_topics_that_were_moved_go_to_their_bundles_broker_once() -> None:
    world = World(hears_late=2)
    await world.adoption().hand_over()
    await world.move({NAMES[0]: TWO, NAMES[1]: ONE})
    world.interruptions.clear()

    handed = await world.adoption().hand_back()

    world.assert_placed_by_bundle()
    assert handed == Handed(kept=len(NAMES) - 2, moved=2, released=len(NAMES))
    assert world.interruptions == {NAMES[0]: 1, NAMES[1]: 1}


async def test_a_rule_here_does_not_keep_a_topic_from_its_bundles_broker() -> None:
    world = World()
    await world.adoption().hand_over()
    await world.move({NAMES[0]: TWO})
    world.forbidden.add((NAMES[0], ONE))

    await world.adoption().hand_back()

    world.assert_placed_by_bundle()


async def test_a_topic_whose_bundle_nobody_has_is_sent_to_whom_pulsar_chooses() -> None:
    world = World()
    await world.adoption().hand_over()
    del world.bundles[NAMES[0]]
    world.interruptions.clear()

    await world.adoption().hand_back()

    world.assert_placed_by_bundle()
    assert world.interruptions == {NAMES[0]: 1}


async def test_topics_that_clients_look_up_through_discovery_are_reported() -> None:
    world = World()
    await world.adoption().hand_over()
    world.keeps_assigning.add(NAMES[0])

    handed = await world.adoption().hand_back()

    assert (handed.released, handed.assigned_again) == (len(NAMES), 1)


async def test_handing_back_what_was_never_handed_over_changes_nothing() -> None:
    world = World()

    assert await world.adoption().hand_back() == Handed()

    world.assert_placed_by_bundle()
    assert not world.interruptions


@pytest.mark.parametrize("dies_at", range(1, 20))
async def test_a_command_that_died_goes_on_without_interrupting_anybody(dies_at: int) -> None:
    """It dies in front of each of its calls in turn, and is run again."""
    world = World(hears_late=2)
    world.dies_at = dies_at
    died = False
    try:
        await world.adoption().hand_over()
    except Killed:
        died = True
        await world.adoption().hand_over()

    world.assert_placed_by_topic()
    assert not world.interruptions
    world.dies_at = world.calls + dies_at
    try:
        await world.adoption().hand_back()
    except Killed:
        died = True
        await world.adoption().hand_back()

    world.assert_placed_by_bundle()
    assert not world.interruptions
    assert died or dies_at > 10


@pytest.mark.parametrize("dies_at", range(1, 12))
async def test_a_command_that_died_can_be_turned_round(dies_at: int) -> None:
    world = World(hears_late=2)
    world.dies_at = dies_at
    with contextlib.suppress(Killed):
        await world.adoption().hand_over()

    await world.adoption().hand_back()

    world.assert_placed_by_bundle()
    assert not world.interruptions


async def test_progress_is_shown_step_by_step() -> None:
    world = World()

    await world.adoption().hand_over()
    await world.adoption().hand_back()

    steps = list(dict.fromkeys(each.step for each in world.shown))
    assert steps == ["claiming", "switching", "settling", "returning", "releasing"]
    assert Progress("claiming", len(NAMES), len(NAMES)) in world.shown
    assert all(each.done <= each.total for each in world.shown)
