"""The chain behind a topic's place, out of the events of several logs."""

from __future__ import annotations

import pytest

from nextgen.cli.topics.why import Chain, broker_ids, chain_of, lines
from protos.nextgen.v1 import events_pb2 as pb
from protos.nextgen.v1.policies_pb2 import PlacementRules, Policies

TOPIC = "persistent://acme/orders/paid"
PARENTS = ("acme", "acme/orders", TOPIC)
START_MS = 1_700_000_000_000


class Log:
    """One shard's log; its clock moves by a second with each event."""

    def __init__(self, shard_id: int) -> None:
        self.shard_id = shard_id
        self.events: list[pb.Event] = []

    def add(self, after_s: int, **payload: object) -> None:
        event = pb.Event(**payload)  # type: ignore[arg-type]
        event.shard_id = self.shard_id
        event.position = len(self.events) + 1
        event.time_ms = START_MS + 1_000 * after_s
        self.events.append(event)


def assigned(
    epoch: int,
    broker: str,
    reason: str,
    decision: pb.PlacementDecision | None = None,
    name: str = TOPIC,
) -> pb.TopicAssigned:
    return pb.TopicAssigned(
        name=name,
        epoch=epoch,
        broker_id=broker,
        session_id=f"s-{broker}",
        reason=reason,
        decision=decision,
    )


def policy(name: str, **said: object) -> pb.PolicySet:
    return pb.PolicySet(name=name, policy=Policies(**said).SerializeToString())  # type: ignore[arg-type]


def moved_three_times() -> tuple[Log, Log]:
    own, other = Log(1), Log(2)
    seen = [
        pb.CandidateSeen(broker_id="b-1", units_used=3, units_leased=10),
        pb.CandidateSeen(broker_id="b-2", units_used=5, units_leased=10, load_permille=305),
    ]
    first = pb.PlacementDecision(rule="two_choices", candidates=3, excluded=1, compared=seen)
    own.add(0, topic_created=pb.TopicCreated(name=TOPIC))
    own.add(1, topic_assigned=assigned(1, "b-1", "first_lookup", first))
    own.add(2, topic_assigned=assigned(1, "b-9", "first_lookup", name=f"{TOPIC}-else"))
    drain = pb.BrokerDrainSet(broker_id="b-1", session_id="s-b-1", draining=True)
    other.add(3, broker_drain_set=drain)
    asked = pb.PlacementDecision(rule="only_one", candidates=1, asked_by="drain")
    own.add(4, topic_assigned=assigned(2, "b-2", "drained", asked))
    pinned = PlacementRules(pinned_brokers=["b-3", "b-4"])
    own.add(5, policy_set=policy(TOPIC, placement=pinned))
    own.add(6, topic_assigned=assigned(3, "b-3", "pinned"))
    ended = pb.BrokerSessionEnded(broker_id="b-3", session_id="s-b-3", reason="expired")
    other.add(7, broker_session_ended=ended)
    other.add(7, broker_session_ended=pb.BrokerSessionEnded(broker_id="b-3", session_id="older"))
    own.add(8, topic_assigned=assigned(4, "b-4", "broker_lost"))
    return own, other


def chain(own: Log, *others: Log) -> Chain:
    return chain_of(TOPIC, PARENTS, own.events, [each for log in others for each in log.events])


def test_a_topic_that_moved_three_times_has_each_move_with_its_reason() -> None:
    own, other = moved_three_times()

    found = chain(own, other)

    assert broker_ids(TOPIC, own.events) == ["b-1", "b-2", "b-3", "b-4"]
    assert (found.broker_id, found.epoch) == ("b-4", 4)
    assert [(step.shard_id, step.position, step.what) for step in found.steps] == [
        (1, 1, "created"),
        (1, 2, "assigned to b-1, epoch 1"),
        (2, 1, "b-1 is to be emptied"),
        (1, 4, "assigned to b-2, epoch 2, from b-1"),
        (1, 5, f"rules of {TOPIC}: pinned_brokers b-3,b-4"),
        (1, 6, "assigned to b-3, epoch 3, from b-2"),
        (2, 2, "session of b-3 ended"),
        (1, 7, "assigned to b-4, epoch 4, from b-3"),
    ]
    assert [step.why for step in found.steps] == [
        "",
        "no broker had it when it was looked up; the emptier of two random brokers, "
        "3 could have it, rules kept it from 1",
        "",
        "its broker was being emptied; the only broker that could take it, 1 could have it, "
        "asked for by drain",
        "",
        "it was pinned elsewhere",
        "expired",
        "its broker's session had ended",
    ]
    assert found.steps[1].compared == (
        "b-1: 3 of 10 units",
        "b-2: 5 of 10 units, load 30.5 %",
    )


def test_what_people_read_has_the_time_of_every_step_and_ends_with_the_place() -> None:
    own, other = moved_three_times()

    shown = list(lines(chain(own, other)))

    assert shown[0].startswith("2023-11-14 22:13:20.000  1:1 ")
    assert shown[-1] == f"{TOPIC} is at b-4, epoch 4"
    assert "chose   b-1: 3 of 10 units" in "\n".join(shown)


def test_only_rules_of_placement_are_part_of_the_chain() -> None:
    own = Log(1)
    own.add(0, policy_set=policy("acme", message_ttl_ms=5))
    own.add(1, policy_set=policy("acme/orders", placement=PlacementRules(zones=["z"])))
    own.add(2, policy_set=policy("acme/bills", placement=PlacementRules(zones=["y"])))
    own.add(3, policy_cleared=pb.PolicyCleared(name="acme/orders"))
    own.add(4, policy_cleared=pb.PolicyCleared(name="acme"))

    found = chain(own)

    assert [step.what for step in found.steps] == [
        "rules of acme/orders: zones z",
        "rules of acme/orders: none any more",
    ]


def test_a_topic_begins_with_the_rules_in_force_and_not_with_an_earlier_life() -> None:
    own = Log(1)
    own.add(0, policy_set=policy("acme", placement=PlacementRules(zones=["old"])))
    own.add(1, policy_set=policy("acme", placement=PlacementRules(zones=["z"])))
    own.add(2, policy_set=policy("acme/orders", placement=PlacementRules(racks=["r"])))
    own.add(3, policy_cleared=pb.PolicyCleared(name="acme/orders"))
    own.add(4, topic_created=pb.TopicCreated(name=TOPIC))
    own.add(5, policy_set=policy(TOPIC, placement=PlacementRules(racks=["r"])))
    own.add(6, topic_assigned=assigned(1, "b-1", "first_lookup"))
    own.add(7, topic_deleted=pb.TopicDeleted(name=TOPIC))
    own.add(8, topic_created=pb.TopicCreated(name=TOPIC))

    found = chain(own)

    assert [step.what for step in found.steps] == ["rules of acme: zones z", "created"]
    assert (found.broker_id, found.epoch) == ("", 0)


def test_an_event_that_is_read_twice_is_one_step() -> None:
    own, other = moved_three_times()

    assert chain(own, other, own) == chain(own, other)


def test_a_unit_that_was_taken_away_is_nowhere() -> None:
    own = Log(1)
    own.add(0, topic_assigned=assigned(1, "b-1", "first_lookup"))
    own.add(1, topic_unassigned=pb.TopicUnassigned(name=TOPIC, epoch=1, reason="idle"))

    found = chain(own)

    assert found.broker_id == ""
    assert found.steps[-1].what == "taken from b-1, epoch 1 ended"
    assert found.steps[-1].why == "no client used it"
    assert list(lines(found))[-1].endswith("its next lookup assigns it")


def test_reasons_and_rules_of_a_later_release_are_shown_as_they_are() -> None:
    own = Log(1)
    decision = pb.PlacementDecision(rule="by_the_moon", candidates=2)
    own.add(0, topic_assigned=assigned(1, "b-1", "eclipse", decision))

    (step,) = chain(own).steps

    assert step.why == "eclipse; by_the_moon, 2 could have it"


def test_a_topic_that_is_at_no_broker_says_why() -> None:
    own = Log(1)
    own.add(1, topic_assigned=assigned(1, "b-1", "first_lookup"))
    ended = pb.TopicUnassigned(topic_id="t", name=TOPIC, epoch=1, reason="idle")
    own.add(2, topic_unassigned=ended)

    found = chain(own)

    assert (found.broker_id, found.why_none) == ("", "no client used it")
    assert list(lines(found))[-1] == (
        f"{TOPIC} is at no broker because no client used it; its next lookup assigns it"
    )
    own.add(3, topic_assigned=assigned(2, "b-2", "first_lookup"))
    assert chain(own).why_none == ""


def test_a_topic_that_left_for_lack_of_capacity_says_what_was_set() -> None:
    own, other = Log(1), Log(2)
    own.add(1, topic_assigned=assigned(1, "b-1", "first_lookup"))
    lowered = pb.BrokerCapacitySet(broker_id="b-1", session_id="s-b-1", capacity_units=20_000)
    other.add(2, broker_capacity_set=lowered)
    other.add(2, broker_capacity_set=pb.BrokerCapacitySet(broker_id="b-1", session_id="older"))
    own.add(3, topic_assigned=assigned(2, "b-2", "capacity_lowered"))

    steps = chain(own, other).steps

    assert [step.what for step in steps] == [
        "assigned to b-1, epoch 1",
        "b-1 may have 20,000 units",
        "assigned to b-2, epoch 2, from b-1",
    ]
    assert steps[-1].why == "its broker had more units than its capacity"


@pytest.mark.parametrize(
    ("unit_permille", "said"),
    [
        (124, "the topic 12.4 % of the first share"),
        (0, "the topic so little that no report named it"),
    ],
)
def test_a_move_for_balance_is_told_with_the_numbers_behind_it(
    unit_permille: int, said: str
) -> None:
    log = Log(1)
    seen = pb.BalanceSeen(from_permille=1_530, to_permille=210, unit_permille=unit_permille)
    moved = pb.PlacementDecision(rule="asked_for", candidates=1, asked_by="balance", balance=seen)
    log.add(0, topic_created=pb.TopicCreated(name=TOPIC))
    log.add(1, topic_assigned=assigned(1, "b-1", "first_lookup"))
    log.add(2, topic_assigned=assigned(2, "b-3", "rebalanced", moved))

    step = chain(log).steps[-1]

    assert step.what == "assigned to b-3, epoch 2, from b-1"
    assert step.why == (
        f"brokers were uneven: b-1 carried 153 % of its share, b-3 21 %, {said}; "
        "the broker that was asked for, 1 could have it, asked for by balance"
    )


def test_a_topic_whose_slot_came_from_another_shard_is_told_from_its_beginning() -> None:
    before, now = Log(1), Log(2)
    before.add(0, topic_created=pb.TopicCreated(name=TOPIC))
    before.add(1, topic_assigned=assigned(1, "b-1", "first_lookup"))
    now.add(2, slots_adopted=pb.SlotsAdopted(move_id=1, from_shard=1, from_position=3))
    now.add(3, topic_assigned=assigned(2, "b-2", "moved"))
    now.events[-1].topic_assigned.session_id = "s-b-2"

    told = chain_of(TOPIC, PARENTS, [*before.events, *now.events])

    assert [step.what for step in told.steps] == [
        "created",
        "assigned to b-1, epoch 1",
        "its slot came from shard 1, up to 3",
        "assigned to b-2, epoch 2, from b-1",
    ]


def test_a_renamed_topics_chain_begins_with_its_first_name() -> None:
    new = "persistent://acme/archive/paid"
    own = Log(1)
    own.add(0, topic_created=pb.TopicCreated(name=TOPIC))
    own.add(1, topic_assigned=assigned(1, "b-1", "first_lookup"))
    own.add(2, topic_unassigned=pb.TopicUnassigned(name=TOPIC, epoch=1, reason="renamed"))
    own.add(2, topic_renamed=pb.TopicRenamed(name=TOPIC, new_name=new))
    before = chain_of(new, ("acme", "acme/archive", new, *PARENTS), own.events, (), (TOPIC,))
    own.add(3, topic_assigned=assigned(2, "b-2", "first_lookup", name=new))
    after = chain_of(new, ("acme", "acme/archive", new, *PARENTS), own.events, (), (TOPIC,))

    assert [step.what for step in after.steps] == [
        "created",
        "assigned to b-1, epoch 1",
        "taken from b-1, epoch 1 ended",
        f"renamed from {TOPIC} to {new}",
        "assigned to b-2, epoch 2",
    ]
    assert (after.name, after.broker_id, after.epoch) == (new, "b-2", 2)
    assert before.why_none == "the topic was renamed"
    assert broker_ids(new, own.events, [TOPIC]) == ["b-1", "b-2"]
