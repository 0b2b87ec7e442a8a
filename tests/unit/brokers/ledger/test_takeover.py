"""What a takeover and the first round behind it leave on disk, step by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from brokers.adapters.ledger.format.files import ENTRIES, Owner, UnitDirectory, create_fence
from brokers.adapters.ledger.format.measuring import measure_epoch
from brokers.adapters.ledger.ownership import takeover as takeover_module
from brokers.adapters.ledger.ownership.seals import Seal, encode_seal
from brokers.adapters.ledger.ownership.takeover import (
    Holding,
    Takeover,
    Unit,
    one_by_one,
    remove_superfluous,
)
from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.adapters.ledger.writing.unit_files import Batch, PendingEntry, UnitFiles
from brokers.domain.position import Position, ledger_id_of
from brokers.ports.ledger import Fenced, NewEntry
from nextgen.storage.disk import SharedStorage

TOPIC = "0a1b00112233445566778899"
NAME = "persistent://public/default/orders"
UNIT = Unit(TOPIC, "", NAME)
BEFORE_A_NAME = ["entries written", "facts written", "entries fsynced"]
BEHIND_A_NAME = ["segment begun", "facts fsynced", "fence looked for"]

Step = Callable[[], None]


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def directory(tmp_path: Path) -> UnitDirectory:
    return UnitDirectory(tmp_path, TOPIC, "")


def no_step(_name: str) -> None:
    return


def take_over(
    directory: UnitDirectory, epoch: int, on_step: Callable[[str], None] = no_step
) -> Holding:
    owner = Owner("b", f"token-{epoch}", lambda: 1)
    holding = Takeover(directory, UNIT, epoch, owner, on_step).run()
    remove_superfluous(directory, epoch, holding)
    return holding


def opened(
    directory: UnitDirectory, epoch: int, on_step: Callable[[str], None] = no_step
) -> UnitFiles:
    holding = take_over(directory, epoch)
    owner = Owner("b", f"token-{epoch}", lambda: 1)
    return UnitFiles(directory, UNIT, epoch, owner, holding, index_bytes=60_000, on_step=on_step)


def round_of(epoch: int, number: int, *, segment: int = 0, producer: str = "p") -> Batch:
    """Return a round with one entry, the first of its segment if its number is 0, and a fact."""
    position = Position(ledger_id_of(epoch, segment), number)
    entry = NewEntry(b"entry", 1, producer, number)
    producers: dict[str, int] | None = None if number else {}
    pending = PendingEntry(entry, position, 1, producer.encode(), producers, None)
    return Batch([pending], {"cursor/c": b"%d" % number})


def store(files: UnitFiles, batch: Batch) -> None:
    files.write(batch)
    files.sync()
    assert not files.is_fenced()
    files.settle()


def crash_at(step: str) -> Callable[[str], None]:
    def on_step(name: str) -> None:
        if name == step:
            raise Crash(name)

    return on_step


def names(directory: UnitDirectory) -> set[str]:
    return set(os.listdir(directory.path))


# The first owner ------------------------------------------------------------------------------


def take_over_beside(
    directory: UnitDirectory, epoch: int, meanwhile: Callable[[Sequence[Step]], None]
) -> Holding:
    """Take over, and call ``meanwhile`` with what becomes durable before a first claim."""
    owner = Owner("b", f"token-{epoch}", lambda: 1)

    def together(steps: Sequence[Step]) -> None:
        one_by_one(steps)
        meanwhile(steps)

    return Takeover(directory, UNIT, epoch, owner, no_step, together).run()


def test_before_the_first_claim_the_directory_and_a_snapshot_become_durable_together(
    directory: UnitDirectory,
) -> None:
    seen: list[tuple[int, set[str]]] = []

    take_over_beside(directory, 1, lambda steps: seen.append((len(steps), names(directory))))
    take_over_beside(directory, 2, lambda steps: seen.append((len(steps), names(directory))))

    assert seen == [(3, {"temporary-1-token-1-state"})], "once, and nothing is claimed yet"
    assert {"claim-2", "2-0.state"} <= names(directory)


def test_a_first_snapshot_is_not_used_if_another_owner_has_served_meanwhile(
    directory: UnitDirectory,
) -> None:
    """1. The second owner finds no claim. 2. The first one claims, and stores a fact. 3. The second
    one claims."""

    def serve(_steps: Sequence[Step]) -> None:
        files = opened(directory, 1)
        store(files, round_of(1, 0))

    holding = take_over_beside(directory, 2, serve)

    assert holding.past.facts == {"cursor/c": b"0"}
    assert take_over(directory, 3).past.facts == {"cursor/c": b"0"}


def test_an_owner_whose_first_snapshot_a_later_one_has_removed_is_fenced(
    directory: UnitDirectory,
) -> None:
    def overtake(_steps: Sequence[Step]) -> None:
        take_over(directory, 2)

    with pytest.raises(Fenced):
        take_over_beside(directory, 1, overtake)


# The fence ------------------------------------------------------------------------------------


def test_a_fence_is_another_name_of_the_claim_and_outlives_it(directory: UnitDirectory) -> None:
    take_over(directory, 1)

    Takeover(directory, UNIT, 2, Owner("b", "token-2", lambda: 1), no_step).run()
    claim = os.stat(directory.claim(2))
    fence = os.stat(directory.fence(1))
    os.unlink(directory.claim(2))

    assert fence.st_ino == claim.st_ino
    assert b"token-2" in Path(directory.fence(1)).read_bytes()


def test_making_a_fence_does_not_change_whose_claim_it_is(directory: UnitDirectory) -> None:
    take_over(directory, 1)
    found: list[tuple[int, int] | None] = []

    holding = take_over(
        directory,
        2,
        lambda name: found.append(directory.claim_identity(2)) if name == "claim written" else None,
    )

    assert found == [holding.claim]
    assert not directory.is_fenced(2, holding.claim)


def test_a_fence_that_is_there_stays_whose_it_is(directory: UnitDirectory) -> None:
    take_over(directory, 1)
    with pytest.raises(Crash):
        take_over(directory, 2, crash_at("fence written"))
    made = os.stat(directory.fence(1)).st_ino

    create_fence(directory.storage, directory.fence(1), directory.claim(1))

    assert os.stat(directory.fence(1)).st_ino == made == os.stat(directory.claim(2)).st_ino


def test_a_successor_whose_claim_is_gone_when_it_fences_is_fenced(
    directory: UnitDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later one has come, served, and removed what was left, behind the look at the claims."""
    store(opened(directory, 1), round_of(1, 0))

    def overtaken(storage: SharedStorage, path: str, claim: str) -> None:
        monkeypatch.undo()
        take_over(directory, 3)
        assert not os.path.exists(claim)
        # The later one has made it already; without it there is nothing left to make it of.
        os.unlink(path)
        create_fence(storage, path, claim)

    monkeypatch.setattr(takeover_module, "create_fence", overtaken)
    with pytest.raises(Fenced):
        take_over(directory, 2)

    assert take_over(directory, 4).past.table.entry_count == 1


@pytest.mark.parametrize("is_served", [True, False])
def test_claim_and_fence_are_durable_before_anything_rests_on_them(
    directory: UnitDirectory, monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    files = opened(directory, 1)
    if is_served:
        store(files, round_of(1, 0))
    durable: list[set[str]] = []
    at_step: dict[str, set[str]] = {}
    sync = UnitDirectory.sync

    def syncs(self: UnitDirectory, *label: str) -> None:
        durable.append(names(self))
        sync(self, *label)

    monkeypatch.setattr(UnitDirectory, "sync", syncs)
    take_over(directory, 2, lambda name: at_step.update({name: durable[-1] if durable else set()}))

    assert {"claim-2", "fence-1"} <= at_step["measured"]
    assert {"claim-2", "fence-1", "seal-1", "2-0.state"} <= at_step["snapshot written"]


def test_a_claim_that_has_nobody_to_seal_is_durable_when_it_is_served(
    directory: UnitDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[set[str]] = []
    monkeypatch.setattr(UnitDirectory, "sync", lambda self, *_label: durable.append(names(self)))

    take_over(directory, 1)

    assert {"claim-1", "1-0.state"} <= durable[-1]


# The seal -------------------------------------------------------------------------------------


def test_an_owner_whose_seal_comes_too_late_uses_the_winners(directory: UnitDirectory) -> None:
    """The winner has measured before a round that came in front of the fence, or behind."""
    files = opened(directory, 1)
    store(files, round_of(1, 0))
    earlier = measure_epoch(directory, 1)
    store(files, round_of(1, 1))

    def win(name: str) -> None:
        if name == "measured":
            assert earlier.producers is not None
            seal = Seal(1, 2, earlier.segments, earlier.state, earlier.producers)
            Path(directory.seal(1)).write_bytes(encode_seal(seal))

    holding = take_over(directory, 3, win)

    assert holding.past.table.entry_count == 1
    assert holding.past.facts == {"cursor/c": b"0"}
    assert holding.past.producers == {"p": 0}


def test_what_a_successor_has_read_to_seal_it_is_what_it_begins_with(
    directory: UnitDirectory,
) -> None:
    files = opened(directory, 1)
    for number in range(3):
        store(files, round_of(1, number))

    second = take_over(directory, 2)
    third = take_over(directory, 3)

    assert second.past.facts == third.past.facts == {"cursor/c": b"2"}
    assert second.past.producers == third.past.producers == {"p": 2}


def test_producers_are_in_the_order_of_their_last_entries(directory: UnitDirectory) -> None:
    files = opened(directory, 1)
    for number, producer in enumerate("ppqqprq"):
        store(files, round_of(1, number, producer=producer))

    assert list(take_over(directory, 2).past.producers.items()) == [("p", 4), ("r", 5), ("q", 6)]


# The first round ------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("step", BEFORE_A_NAME + BEHIND_A_NAME)
def test_a_segment_is_whole_when_it_has_its_name_wherever_its_owner_is_gone(
    directory: UnitDirectory, step: str, segment: int
) -> None:
    steps: list[Callable[[str], None]] = [no_step]
    files = opened(directory, 1, lambda name: steps[0](name))
    for number in range(segment):
        store(files, round_of(1, 0, segment=number))
    steps[0] = crash_at(step)

    with pytest.raises(Crash):
        store(files, round_of(1, 0, segment=segment))

    entries = f"1-{segment}.{ENTRIES}"
    is_named = step in BEHIND_A_NAME
    assert (entries in names(directory)) is is_named
    assert take_over(directory, 2).past.table.entry_count == segment + is_named
    assert not [name for name in names(directory) if name.startswith("temporary-")]


def test_the_name_of_a_segment_is_durable_before_its_owner_looks_for_a_fence(
    directory: UnitDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    files = opened(directory, 1, log.append)
    monkeypatch.setattr(
        UnitDirectory,
        "sync",
        lambda self, *_label: log.append(f"names durable: {'1-0.entries' in names(self)}"),
    )

    store(files, round_of(1, 0))
    store(files, round_of(1, 1))

    first = [step for step in log if not step.startswith("facts")]
    assert first == [
        "entries written",
        "entries fsynced",
        "names durable: True",
        "segment begun",
        "fence looked for",
        "entries written",
        "entries fsynced",
        "fence looked for",
    ]


def test_two_segments_of_one_round_follow_each_other(directory: UnitDirectory) -> None:
    files = opened(directory, 1)
    first, second = round_of(1, 0), round_of(1, 0, segment=1)

    store(files, Batch([*first.entries, *second.entries]))

    measured = measure_epoch(directory, 1)
    assert [end.entries for end in measured.segments] == [1, 1]
    assert take_over(directory, 2).past.table.entry_count == 2


async def test_an_owner_whose_segment_was_removed_before_it_had_a_name_is_fenced(
    tmp_path: Path, directory: UnitDirectory
) -> None:
    """Its successor comes between the fsync and the name, and removes what has none."""
    successors: list[Holding] = []

    def on_step(name: str) -> None:
        if name == "entries fsynced" and not successors:
            successors.append(take_over(directory, 2))

    owner = DiskLedgerStore(tmp_path, broker_id="a", on_step=on_step)
    ledger = await owner.open(TOPIC, "", 1, topic_name=NAME)

    with pytest.raises(Fenced):
        await ledger.append(NewEntry(b"entry", 1, "p", 0))

    assert successors[0].past.table.entry_count == 0
    assert "1-0.entries" not in names(directory)
    await owner.close()
