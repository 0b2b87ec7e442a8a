"""Wishes and reports: how a placement comes to other replicas, one version of the map at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.domain.replica_changes import (
    Change,
    ChangeReplicas,
    TakeMembers,
    decide_change,
    decide_members,
)
from cluster_manager.domain.shard_map import (
    REPLICATION_FACTOR_MAX,
    MapEvent,
    Placement,
    ShardChanged,
    ShardMap,
    ShardMapChanged,
    State,
    evolve,
    place_replicas,
)
from cluster_manager.projections import tables
from cluster_manager.projections.fold import fold_event
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import GROUP_MEMBERS_MAX, NODE_ID_BYTES_MAX
from nextgen.kernel.routing.slots import initial_table

NODES = ("a", "b", "c", "d", "e")
ALL = frozenset(NODES)
FIRST = Placement(1, ("a", "b", "c"))
MAP = ShardMap(initial_table([1, 2]), (FIRST, Placement(2, ("b", "c", "a"))))
TABLE = MAP.table

Command = ChangeReplicas | TakeMembers

changes = st.builds(
    ChangeReplicas,
    shard_id=st.integers(1, 3),
    node_id=st.sampled_from(NODES),
    change=st.sampled_from(Change),
    connected=st.frozensets(st.sampled_from(NODES)),
)


@st.composite
def reports(draw: st.DrawFn) -> TakeMembers:
    members = draw(st.lists(st.sampled_from(NODES), unique=True, max_size=5))
    voters = draw(st.integers(0, len(members)))
    return TakeMembers(
        draw(st.integers(1, 3)),
        draw(st.integers(0, 30)),
        tuple(members[:voters]),
        tuple(members[voters:]),
    )


commands: st.SearchStrategy[Command] = st.one_of(changes, reports())


def decide(state: State, command: Command) -> Accepted[ShardChanged] | Rejected:
    if isinstance(command, ChangeReplicas):
        return decide_change(state, command)
    return decide_members(state, command)


def apply(state: State, command: Command) -> State:
    decision = decide(state, command)
    return fold(evolve, state, decision.events) if isinstance(decision, Accepted) else state


def wish(change: Change, node_id: str, *, connected: frozenset[str] = ALL) -> ChangeReplicas:
    return ChangeReplicas(1, node_id, change, connected)


def report(index: int, *voters: str, learners: tuple[str, ...] = ()) -> TakeMembers:
    return TakeMembers(1, index, voters, learners)


def placement_after(*commands: Command, state: ShardMap = MAP) -> Placement:
    """Return shard 1's placement after commands that must all be accepted."""
    after: State = state
    for command in commands:
        assert isinstance(decide(after, command), Accepted), command
        after = apply(after, command)
    assert after is not None
    found = after.placement(1)
    assert found is not None
    return found


def code_of(state: State, command: Command) -> RejectionCode:
    decision = decide(state, command)
    assert isinstance(decision, Rejected)
    return decision.code


def state_of(placement: Placement) -> ShardMap:
    return MAP.after(ShardChanged(MAP.version + 1, (placement,)))


# Wishes -------------------------------------------------------------------------------------------


def test_a_node_that_is_added_joins_in_the_next_version_and_moves_no_slot() -> None:
    decision = decide_change(MAP, wish(Change.ADD, "d"))

    joined = replace(FIRST, joining=("d",))
    assert decision == Accepted((ShardChanged(MAP.version + 1, (joined,)),))
    after = evolve(MAP, *decision.events)
    assert after is not None
    assert after.version == MAP.version + 1
    assert after.table.owners == MAP.table.owners
    assert after.placements == (joined, MAP.placement(2))


def test_a_replica_that_is_removed_leaves_and_stays_a_replica_until_it_is_reported_gone() -> None:
    assert placement_after(wish(Change.REMOVE, "c")) == replace(FIRST, leaving=("c",))


def test_a_cancelled_removal_leaves_the_placement_as_it_was() -> None:
    assert placement_after(wish(Change.REMOVE, "c"), wish(Change.CANCEL, "c")) == FIRST


def test_a_node_whose_joining_is_cancelled_is_named_until_it_is_reported_gone() -> None:
    cancelled = placement_after(wish(Change.ADD, "d"), wish(Change.CANCEL, "d"))

    assert cancelled == replace(FIRST, leaving=("d",))
    assert "d" in cancelled.named
    gone = placement_after(report(0, "a", "b", "c"), state=state_of(cancelled))
    assert gone == FIRST


def test_a_node_whose_joining_was_cancelled_may_join_again() -> None:
    again = placement_after(wish(Change.ADD, "d"), wish(Change.CANCEL, "d"), wish(Change.ADD, "d"))

    assert again == replace(FIRST, joining=("d",))


@pytest.mark.parametrize(
    ("placement", "command", "code", "words"),
    [
        (FIRST, ChangeReplicas(9, "d", Change.ADD, ALL), RejectionCode.NOT_FOUND, "no shard 9"),
        (FIRST, wish(Change.ADD, "a"), RejectionCode.ALREADY_EXISTS, "already"),
        (
            replace(FIRST, leaving=("a",)),
            wish(Change.ADD, "a"),
            RejectionCode.NOT_ALLOWED,
            "cancel that first",
        ),
        (FIRST, wish(Change.REMOVE, "d"), RejectionCode.NOT_FOUND, "no replica"),
        (
            replace(FIRST, joining=("d",)),
            wish(Change.REMOVE, "d"),
            RejectionCode.NOT_ALLOWED,
            "cancel that instead",
        ),
        (Placement(1, ("a",)), wish(Change.REMOVE, "a"), RejectionCode.NOT_ALLOWED, "last"),
        (
            Placement(1, ("a", "b"), leaving=("b",)),
            wish(Change.REMOVE, "a"),
            RejectionCode.NOT_ALLOWED,
            "last",
        ),
        (FIRST, wish(Change.CANCEL, "d"), RejectionCode.NOT_FOUND, "nothing is under way"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(
    placement: Placement, command: ChangeReplicas, code: RejectionCode, words: str
) -> None:
    decision = decide_change(state_of(placement), command)

    assert isinstance(decision, Rejected)
    assert decision.code is code
    assert words in decision.message


def test_a_cluster_without_a_map_has_no_replicas_to_change() -> None:
    assert code_of(None, wish(Change.ADD, "d")) is RejectionCode.NOT_FOUND
    assert code_of(None, report(1, "a")) is RejectionCode.NOT_FOUND


def test_as_many_replicas_as_allowed_may_be_there_with_those_that_come_and_go() -> None:
    held = tuple(f"n{number}" for number in range(REPLICATION_FACTOR_MAX - 2))
    one_left = Placement(1, held, joining=("x",))

    full = placement_after(wish(Change.ADD, "d"), state=state_of(one_left))

    assert len(full.named) == REPLICATION_FACTOR_MAX
    assert code_of(state_of(full), wish(Change.ADD, "e")) is RejectionCode.LIMIT_EXCEEDED
    cancelled = placement_after(wish(Change.CANCEL, "x"), state=state_of(full))
    assert code_of(state_of(cancelled), wish(Change.ADD, "e")) is RejectionCode.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("leaving", "removed", "connected", "is_accepted"),
    [
        ((), "c", {"a", "b"}, True),  # The dead one is replaced.
        ((), "c", {"a", "c"}, False),  # Of a and b only a would be there.
        ((), "c", {"b", "c"}, False),
        ((), "c", {"c"}, False),
        (("c",), "b", {"a"}, True),  # One alone is a majority of one.
        (("c",), "b", {"b", "c"}, False),
    ],
)
def test_a_removal_must_leave_a_majority_of_replicas_that_are_there(
    leaving: tuple[str, ...], removed: str, connected: set[str], is_accepted: bool
) -> None:
    state = state_of(replace(FIRST, leaving=leaving))

    decision = decide_change(state, wish(Change.REMOVE, removed, connected=frozenset(connected)))

    assert isinstance(decision, Accepted) is is_accepted
    if isinstance(decision, Rejected):
        assert "is not there" in decision.message


# Reports ------------------------------------------------------------------------------------------


def test_a_node_that_is_reported_a_voter_is_a_replica() -> None:
    joined = placement_after(wish(Change.ADD, "d"), report(7, "a", "b", "c", "d"))

    # Shard 2 is led by b, nobody by c or d: shard 1 stays with a.
    assert joined == Placement(1, ("a", "b", "c", "d"), configuration_index=7)


def test_a_learner_is_still_joining_and_makes_no_version() -> None:
    state = apply(MAP, wish(Change.ADD, "d"))

    assert decide(state, report(5, "a", "b", "c", learners=("d",))) == Accepted(())


def test_a_voter_that_is_reported_gone_is_no_replica() -> None:
    left = placement_after(wish(Change.REMOVE, "c"), report(8, "a", "b"))

    assert left == Placement(1, ("a", "b"), configuration_index=8)


def test_a_shard_has_led_whatever_its_members_are() -> None:
    state = apply(state_of(replace(FIRST, has_led=True)), wish(Change.ADD, "d"))

    state = apply(state, report(7, "a", "b", "c", "d"))

    assert [each.has_led for each in state.placements] == [
        each.shard_id == 1 for each in state.placements
    ]


def test_what_the_map_says_already_makes_no_version() -> None:
    assert decide(MAP, report(0, "c", "b", "a")) == Accepted(())
    assert decide(MAP, report(90, "a", "b", "c")) == Accepted(())


def test_a_report_of_an_earlier_configuration_is_refused() -> None:
    state = apply(apply(MAP, wish(Change.ADD, "d")), report(7, "a", "b", "c", "d"))

    assert code_of(state, report(6, "a", "b", "c")) is RejectionCode.STALE_EPOCH
    assert decide(state, report(7, "a", "b", "c", "d")) == Accepted(())


def test_a_removal_that_was_cancelled_too_late_brings_the_replica_back() -> None:
    """The shard's leader was faster than the operator.

    1. c is to leave, and the leader removes it;
    2. the operator takes it back before the report is there;
    3. the report says that c is gone: c joins again.
    """
    back = placement_after(wish(Change.REMOVE, "c"), wish(Change.CANCEL, "c"), report(8, "a", "b"))

    assert back == Placement(1, ("a", "b"), joining=("c",), configuration_index=8)


def test_a_voter_that_nobody_asked_for_is_named_and_is_to_leave() -> None:
    named = placement_after(report(8, "a", "b", "c", "e"))

    assert named == Placement(1, ("a", "b", "c", "e"), leaving=("e",), configuration_index=8)


def test_a_cancelled_node_that_became_a_voter_is_named_until_it_is_removed() -> None:
    named = placement_after(
        wish(Change.ADD, "d"), wish(Change.CANCEL, "d"), report(8, "a", "b", "c", "d")
    )

    assert named.leaving == ("d",)
    assert "d" in named.replicas
    assert placement_after(report(9, "a", "b", "c"), state=state_of(named)).named == FIRST.named


@pytest.mark.parametrize(
    "mistaken",
    [
        report(1),
        report(1, "a", "a"),
        report(1, "a", learners=("a",)),
        report(-1, "a"),
        report(2**63, "a"),
        report(1, ""),
        report(1, "n" * (NODE_ID_BYTES_MAX + 1)),
        report(1, *[f"n{number}" for number in range(GROUP_MEMBERS_MAX + 1)]),
    ],
    ids=str,
)
def test_what_is_no_configuration_is_refused(mistaken: TakeMembers) -> None:
    assert code_of(MAP, mistaken) is RejectionCode.NOT_ALLOWED


def test_a_report_at_the_limit_of_members_is_taken() -> None:
    most = report(1, *[f"n{number}" for number in range(GROUP_MEMBERS_MAX)])

    assert isinstance(decide(MAP, most), Accepted)


def test_first_replicas_stay_even_while_a_node_is_replaced_everywhere() -> None:
    """Node c is replaced by d in every shard, one change after the other."""
    placements = place_replicas(range(1, 7), ("a", "b", "c"), 3)
    state: State = ShardMap(initial_table(range(1, 7)), placements)
    for shard_id in range(1, 7):
        for command in (
            ChangeReplicas(shard_id, "d", Change.ADD, ALL),
            TakeMembers(shard_id, 5, ("a", "b", "c", "d"), ()),
            ChangeReplicas(shard_id, "c", Change.REMOVE, ALL),
            TakeMembers(shard_id, 6, ("a", "b", "d"), ()),
        ):
            assert isinstance(decide(state, command), Accepted)
            state = apply(state, command)

    assert state is not None
    firsts = Counter(placement.replicas[0] for placement in state.placements)
    assert set(firsts.values()) == {2}


# Properties ---------------------------------------------------------------------------------------


@given(history=st.lists(commands, max_size=12), command=commands)
@settings(max_examples=200)
def test_retry(history: list[Command], command: Command) -> None:
    state: State = MAP
    for earlier in history:
        state = apply(state, earlier)

    if isinstance(decide(state, command), Accepted):
        assert decide(apply(state, command), command) == Accepted(())


@given(history=st.lists(commands, max_size=12))
@settings(max_examples=60)
def test_replay_and_snapshot(history: list[Command]) -> None:
    state: State = MAP
    events: list[MapEvent] = [ShardMapChanged(MAP)]
    engine = sql.create_engine("sqlite://")
    for command in history:
        decision = decide(state, command)
        events += decision.events if isinstance(decision, Accepted) else ()
        state = apply(state, command)
    with engine.begin() as connection:
        tables.METADATA.create_all(connection)
        for event in events:
            fold_event(connection, event)
        restored = tables.load_state(connection).shard_map
    engine.dispose()

    assert restored == state
    assert fold(evolve, None, events) == state


@given(history=st.lists(commands, max_size=12))
@settings(max_examples=200)
def test_every_placement_that_is_reached_makes_sense(history: list[Command]) -> None:
    state: State = MAP
    for command in history:
        before, state = state, apply(state, command)
        assert before is not None
        assert state is not None
        assert state.table.owners == TABLE.owners
        assert state.version == before.version + (state != before)
        for placement in state.placements:
            assert placement.replicas, "a shard lost its last replica"
            assert len(set(placement.replicas)) == len(placement.replicas)
            assert not set(placement.joining) & {*placement.replicas, *placement.leaving}
            assert len(set(placement.leaving)) == len(placement.leaving)


class _ModelLog:
    """A shard's log as far as its members go: a leader that follows the map step by step."""

    def __init__(self) -> None:
        self.voters, self.learners, self.index = {"a", "b", "c"}, set[str](), 0

    def step(self, placement: Placement) -> None:
        wanted = {*placement.replicas, *placement.joining} - set(placement.leaving)
        stray, missing = self.learners - wanted, sorted(wanted - self.voters)
        if stray:
            self.learners -= stray
        elif missing and missing[0] in self.learners:
            self.learners.discard(missing[0])
            self.voters.add(missing[0])
        elif missing:
            self.learners.add(missing[0])
        elif self.voters - wanted and len(self.voters) > 1:
            self.voters.discard(min(self.voters - wanted))
        else:
            return
        self.index += 1

    def report(self) -> TakeMembers:
        return TakeMembers(1, self.index, tuple(sorted(self.voters)), tuple(sorted(self.learners)))


moves = st.one_of(
    st.builds(wish, change=st.sampled_from(Change), node_id=st.sampled_from(NODES)),
    st.sampled_from(["step", "report", "late report", "learn map"]),
)


@given(script=st.lists(moves, max_size=60))
@settings(max_examples=300)
def test_map_and_log_come_to_agree_whatever_is_lost_repeated_or_late(
    script: list[ChangeReplicas | str],
) -> None:
    """Wishes, steps and reports in any order; then a quiet time brings both together."""
    state: State = MAP
    known, log, sent = MAP, _ModelLog(), [_ModelLog().report()]
    for move in script:
        assert state is not None
        if isinstance(move, ChangeReplicas):
            state = apply(state, move)
        elif move == "step":
            placement = known.placement(1)
            assert placement is not None
            log.step(placement)
            sent.append(log.report())
        elif move == "learn map":
            known = state
        else:
            state = apply(state, sent[-1] if move == "report" else sent[len(sent) // 2])

    for _ in range(40):
        assert state is not None
        placement = state.placement(1)
        assert placement is not None
        log.step(placement)
        state = apply(state, log.report())

    assert state is not None
    placement = state.placement(1)
    assert placement is not None
    assert set(placement.replicas) == log.voters
    assert placement.joining == placement.leaving == ()
    assert not log.learners
