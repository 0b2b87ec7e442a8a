"""Who may acknowledge: owners and successors on threads that take turns as a schedule says.

The same code as in the processes of ``test_fencing``, on real files, but every order of the steps
that others can see is tried, not only those in which somebody sleeps through everything else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brokers.adapters.ledger.format.files import DISK, ENTRIES, Listing, Owner, UnitDirectory
from brokers.adapters.ledger.format.measuring import opened, read_header
from brokers.adapters.ledger.format.records import decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.ownership.takeover import Holding, Takeover, Unit, remove_superfluous
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.domain.position import Position, epoch_of, ledger_id_of, segment_of
from brokers.ports.ledger import Fenced, NewEntry

TOPIC = "0a1b00112233445566778899"
UNIT = Unit(TOPIC, "", "persistent://public/default/orders")
CURSOR = "cursor/c"
TAKEOVER_STEPS = frozenset(
    {"claim written", "fence written", "measured", "sealed", "second look", "snapshot written"}
)
ROUND_STEPS = frozenset({"entries written", "facts written", "fence looked for"})
OWNER_TURNS = len(ROUND_STEPS) + 1
SUCCESSOR_TURNS = len(TAKEOVER_STEPS) + 1


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a loss of power tells an fsync from none, and there is none here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(os, "fdatasync", lambda handle: None)


class Turns:
    """One actor's thread: it runs from one step to the next and waits there for its turn."""

    def __init__(self, body: Callable[[], None], steps: frozenset[str]) -> None:
        self._body = body
        self._steps = steps
        self._go = threading.Semaphore(0)
        self._came = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.is_over = False
        self.is_free = False
        """Whether it runs to its end without stopping."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def step(self, name: str) -> None:
        """Called by the actor: wait for the next turn."""
        if name in self._steps and not self.is_free:
            self._came.release()
            self._go.acquire()

    def take(self) -> None:
        """Let the actor do its next step."""
        if not self.is_over:
            self._go.release()
            self._came.acquire()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        self.is_free = True
        self.take()
        self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._body()
        except BaseException as error:  # Given to the test's own thread.
            self._error = error
        self.is_over = True
        self._came.release()


@dataclass(slots=True)
class History:
    """The answers to the actors, in order."""

    acknowledged: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    fenced: list[str] = field(default_factory=list)


class Actor:
    """An owner that takes over in an epoch and then stores entries and facts, a round each."""

    def __init__(self, root: Path, name: str, epoch: int, history: History) -> None:
        self._name = name
        self._epoch = epoch
        self._history = history
        self._owner = Owner(name, f"token-{name}", lambda: 1)
        self._directory = UnitDirectory(root, TOPIC, "")
        self._files: UnitFiles | None = None
        self._number = 0
        self.takeover_class = Takeover
        self.looks = True
        self.turns: Turns | None = None

    def open(self) -> None:
        takeover = self.takeover_class(
            self._directory, UNIT, self._epoch, self._owner, self._on_step
        )
        holding = takeover.run()
        self._history.found[self._name] = holding.past.facts.get(CURSOR, b"").decode()
        remove_superfluous(self._directory, self._epoch, holding)
        self._begin(holding)

    def store(self, rounds: int) -> None:
        """Store until the rounds are done or this owner is fenced."""
        assert self._files is not None
        for _ in range(rounds):
            text = f"{self._name}-{self._number}"
            self._files.write(self._batch(text))
            self._files.sync()
            if self._files.is_fenced() and self.looks:
                raise Fenced
            self._history.acknowledged.append(text)
            self._history.facts.append(text)
            self._files.settle()
            self._number += 1

    def serve(self) -> None:
        """Open and store one round; being fenced ends it."""
        self._unless_fenced(lambda: (self.open(), self.store(1)))

    def go_on(self) -> None:
        """Store two more rounds; being fenced ends it."""
        self._unless_fenced(lambda: self.store(2))

    def close(self) -> None:
        if self._files is not None:
            self._files.close()

    def _begin(self, holding: Holding) -> None:
        self._files = UnitFiles(
            self._directory,
            UNIT,
            self._epoch,
            self._owner,
            holding,
            index_bytes=1_000,
            on_step=self._on_step,
        )

    def _batch(self, text: str) -> Batch:
        position = Position(ledger_id_of(self._epoch, 0), self._number)
        entry = NewEntry(text.encode(), 1, self._name, self._number)
        producers = None if self._number else {}
        pending = PendingEntry(entry, position, 1, self._name.encode(), producers, None)
        return Batch([pending], {CURSOR: text.encode()}, [])

    def _unless_fenced(self, body: Callable[[], object]) -> None:
        try:
            body()
        except (Fenced, FileNotFoundError):
            self._history.fenced.append(self._name)

    def _on_step(self, name: str) -> None:
        if self.turns is not None:
            self.turns.step(name)


def read_everything(root: Path) -> tuple[list[tuple[int, str]], str]:
    """Take over once more; return all entries with their epochs, and the cursor."""
    directory = UnitDirectory(root, TOPIC, "")
    takeover = Takeover(directory, UNIT, 1_000, Owner("last", "last", lambda: 1), lambda _: None)
    past = takeover.run().past
    entries: list[tuple[int, str]] = []
    for segment in past.table.segments:
        epoch = epoch_of(segment.ledger_id)
        path = directory.numbered(epoch, segment_of(segment.ledger_id), ENTRIES)
        with opened(DISK, path) as handle:
            header, start = read_header(DISK, handle, path)
            scan = Scan(DISK, handle, path, start=start, salt=header.salt, limit=segment.length)
            found = [bytes(decode_entry(record.body).payload).decode() for record in scan]
        assert len(found) == segment.entries
        entries += [(epoch, text) for text in found]
    return entries, past.facts.get(CURSOR, b"").decode()


def run(root: Path, schedule: Sequence[str], **mutations: object) -> History:
    """Play a schedule: a letter is a turn of that actor. ``a`` owns the topic to begin with."""
    history = History()
    actors = {
        name: Actor(root, name, epoch, history) for name, epoch in (("a", 1), ("b", 2), ("c", 3))
    }
    for actor in actors.values():
        for name, value in mutations.items():
            setattr(actor, name, value)
    actors["a"].open()
    actors["a"].store(1)
    for name in sorted(set(schedule)):
        actor = actors[name]
        actor.turns = (
            Turns(actor.go_on, ROUND_STEPS) if name == "a" else Turns(actor.serve, TAKEOVER_STEPS)
        )
    for name in schedule:
        turns = actors[name].turns
        assert turns is not None
        turns.take()
    for actor in actors.values():
        if actor.turns is not None:
            actor.turns.finish()
        actor.close()
    return history


def check(history: History, entries: list[tuple[int, str]], cursor: str) -> None:
    texts = [text for _, text in entries]
    assert len(set(history.acknowledged)) == len(history.acknowledged), "acknowledged twice"
    assert set(history.acknowledged) <= set(texts), "an acknowledged entry is lost"
    assert len(set(texts)) == len(texts), "an entry is there twice"
    assert texts == sorted(texts), "out of order"
    assert [epoch for epoch, _ in entries] == sorted(epoch for epoch, _ in entries)
    owners = [text[0] for text in history.acknowledged]
    for successor, found in history.found.items():
        # What an owner below was told, sooner or later, its successor found when it opened.
        told = [text for text in history.facts if text[0] < successor]
        assert max(told, default="") <= found, "a fact is lost"
    assert cursor >= max(history.facts), "a fact is lost"
    last = max(history.found)
    assert last in history.fenced or last in owners, "nobody serves"


def interleavings(first: str, first_turns: int, second: str, second_turns: int) -> Iterator[str]:
    """Yield every order in which two actors can take their turns."""
    total = first_turns + second_turns
    for places in combinations(range(total), first_turns):
        turns = [second] * total
        for place in places:
            turns[place] = first
        yield "".join(turns)


def switches(schedule: str) -> int:
    return sum(one != other for one, other in pairwise(schedule))


def test_every_order_of_an_owners_and_a_successors_steps_is_safe(tmp_path: Path) -> None:
    count = 0
    outcomes = set()
    for schedule in interleavings("a", OWNER_TURNS, "b", SUCCESSOR_TURNS):
        root = tmp_path / schedule
        history = run(root, schedule)
        check(history, *read_everything(root))
        outcomes.add(tuple(history.acknowledged))
        count += 1

    print(f"{count} orders of a's and b's steps, {len(outcomes)} different histories")
    assert count == 330
    assert outcomes == {
        ("a-0", "b-0"),
        ("a-0", "a-1", "b-0"),
        # Decided before the fence, told after it; b found it.
        ("a-0", "b-0", "a-1"),
    }


def test_two_successors_that_race_leave_one_owner(tmp_path: Path) -> None:
    """Orders with up to three changes of turn, the old owner asleep before its look or after."""
    count = 0
    winners = set()
    for schedule in interleavings("b", SUCCESSOR_TURNS, "c", SUCCESSOR_TURNS):
        if switches(schedule) > 3:
            continue
        for before in ("aa", "aaa"):
            root = tmp_path / f"{before}{schedule}"
            history = run(root, before + schedule)
            check(history, *read_everything(root))
            winners.add(tuple(sorted(set(history.fenced))))
            count += 1

    print(f"{count} orders of b's and c's steps with a asleep; fenced: {sorted(winners)}")
    assert {("a",), ("a", "b")} <= winners


@given(schedule=st.permutations("a" * OWNER_TURNS + "b" * SUCCESSOR_TURNS + "c" * SUCCESSOR_TURNS))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_order_of_three_actors_steps_is_safe(tmp_path: Path, schedule: list[str]) -> None:
    root = tmp_path / "".join(schedule)
    if root.exists():
        return
    history = run(root, schedule)

    check(history, *read_everything(root))


# The checks can fail --------------------------------------------------------------------------


class SealsBeforeItFences(Takeover):
    """A takeover in the wrong order."""

    def _fence(self) -> Listing:
        self._seal_lower(self._directory.listing())
        return super()._fence()


@pytest.mark.parametrize(
    "mutation",
    [{"looks": False}, {"takeover_class": SealsBeforeItFences}],
    ids=["acknowledges without looking", "seals before it fences"],
)
def test_a_broken_rule_is_noticed(tmp_path: Path, mutation: dict[str, object]) -> None:
    def play_all() -> None:
        for schedule in interleavings("a", OWNER_TURNS, "b", SUCCESSOR_TURNS):
            root = tmp_path / schedule
            history = run(root, schedule, **mutation)
            check(history, *read_everything(root))

    with pytest.raises(AssertionError, match="lost"):
        play_all()
