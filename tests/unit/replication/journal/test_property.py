"""Whatever a replica does and whenever the power goes, the journal comes back as it was at
some moment, and not at one before the last thing it reported durable.

Each change is followed by a note of what the journal then said. After a crash the journal
must say one of those things, at or behind the last durable one: never a mixture, never damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.replication.journal.journal import Journal
from nextgen.replication.journal.recovery import Outcome
from nextgen.replication.ports import Configuration, NodeId
from nextgen.replication.protocol.membership import encode_configuration
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.journals import HeldRunner, given_disk, open_journal, payload_of

Said = tuple[object, ...]

# A step is a name and a number that each step reads in its own way.
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "append",
                "configure",
                "learn",
                "truncate",
                "hard_state",
                "cut",
                "reset",
                "durable",
                "work",
                "work",
                "sync",
            ]
        ),
        st.integers(min_value=0, max_value=40),
    ),
    min_size=10,
    max_size=60,
)


@dataclass
class History:
    """What the journal said after each change, and which of it is durable for certain."""

    said: list[Said]
    durable: int = 0
    waiting: list[int] = field(default_factory=list)


def what_it_says(journal: Journal) -> Said:
    """Everything but how much of the beginning is still kept."""
    entries = journal.entries(journal.first_index, journal.last_index, 10**9)
    return (
        journal.hard_state,
        journal.last_index,
        journal.last_term,
        journal.last_position,
        journal.configuration,
        {entry.index: entry for entry in entries},
    )


def agrees(recovered: Said, said: Said) -> bool:
    """True if they differ at most in old entries that one of them has cut away."""
    if recovered[:-1] != said[:-1]:
        return False
    mine, theirs = recovered[-1], said[-1]
    assert isinstance(mine, dict)
    assert isinstance(theirs, dict)
    return all(mine[index] == theirs[index] for index in mine.keys() & theirs.keys())


def configuration_of(index: int, number: int) -> Configuration:
    return Configuration((NodeId("node-1"), NodeId(f"node-{number + 2}")), (), index)


def change_members(journal: Journal, step: str, number: int) -> None:
    if step == "configure":
        term = max(journal.last_term, journal.hard_state[0], 1)
        made = configuration_of(journal.last_index + 1, number)
        journal.append(term, encode_configuration(made), 0)
    elif number % 4 == 0:
        held = journal.configuration
        index = journal.last_index + number % 3
        if index and (held is None or held.index <= index):
            known = configuration_of(index, number) if number % 8 else None
            journal.learn_configuration(known, index=index)


def carry_out(
    journal: Journal, runner: HeldRunner, step: str, number: int, history: History
) -> None:
    match step:
        case "append":
            term = max(journal.last_term, journal.hard_state[0], 1)
            payload = payload_of(journal.last_index + 1, 20 + number * 17)
            journal.append(term, payload, number % 3)
        case "configure" | "learn":
            change_members(journal, step, number)
        case "truncate" if journal.last_index > journal.base_index:
            newest = journal.last_index - journal.base_index
            journal.truncate_from(journal.last_index - number % min(newest, 8))
        case "hard_state":
            term = journal.hard_state[0] + number % 2
            journal.set_hard_state(term, f"node-{number}" if number % 5 else None)
        case "cut":
            journal.cut_before(max(1, journal.last_index + 1 - number))
        case "reset" if number % 8 == 0:
            index = journal.last_index + 5
            known = configuration_of(index - 2, number) if number % 16 else None
            journal.reset_to(index, journal.last_term + 1, journal.last_position + 7, known)
        case "durable":
            at = len(history.said) - 1
            journal.when_durable(lambda: setattr(history, "durable", max(history.durable, at)))
        case "work" if runner.held:
            runner.work()
        case "sync":
            journal.sync()
            history.durable = len(history.said) - 1
    history.said.append(what_it_says(journal))


def live_until_the_power_goes(
    disk: SimDisk, history: History, life: list[tuple[str, int]], operations: int
) -> None:
    """Note the last state as soon as it is known: the step that power cuts short may have
    reached the disk or not, so its result is noted too."""
    runner = HeldRunner()
    disk.cut_power_after(operations)
    try:
        journal = open_journal(disk, runner=runner, cache_bytes=300, segment_bytes=2048)
        assert journal.recovery.outcome is not Outcome.DAMAGED_TAIL
        for step, number in life:
            carry_out(journal, runner, step, number, history)
    except PowerCut:
        pass


@settings(max_examples=150)
@given(
    lives=st.lists(
        st.tuples(steps, st.integers(min_value=0, max_value=120), st.integers(0, 2**32)),
        min_size=1,
        max_size=4,
    )
)
def test_a_journal_comes_back_as_it_was_and_nothing_durable_is_missing(
    lives: list[tuple[list[tuple[str, int]], int, int]],
) -> None:
    disk = given_disk()
    history = History([what_it_says(open_journal(given_disk()))])
    for life, operations, seed in lives:
        live_until_the_power_goes(disk, history, life, operations)
        disk.crash(seed if seed % 3 else None)

        journal = open_journal(disk, segment_bytes=2048)
        recovered = what_it_says(journal)

        assert journal.recovery.outcome is not Outcome.DAMAGED_TAIL
        assert journal.unverified_index == 0
        possible = history.said[history.durable :]
        assert any(agrees(recovered, said) for said in possible)
        history = History([recovered])
