"""Who may acknowledge is decided by storage: processes are stopped between any two steps.

An owner stops itself (SIGSTOP) at one step; a successor takes over and serves; the stopped one is
resumed and goes on trying. Then everything is read. In each interleaving

- every acknowledged entry is there, once, in order, those of a later owner behind all others;
- no entry was acknowledged by two owners;
- what the old owner acknowledges after the new owner's first acknowledgement was decided before
  the fence was made: only an owner that was stopped between its look at the fence and its answer
  can say so late, and it says it of nothing but that round, which its successor has and shows;
- a fact that was acknowledged was found by the successor.

Each test prints its interleavings (pytest -s).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.domain.position import BEFORE_ALL, epoch_of
from brokers.ports.ledger import Entry, LedgerReader
from tests.support.processes.ledger_owner import CURSOR, TOPIC, TOPIC_NAME

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
OPEN_STEPS = ["claim written", "fence written", "measured", "predecessor fsynced", "sealed"]
TAKEOVER_STEPS = [*OPEN_STEPS, "second look", "snapshot written"]
ROUND_STEPS = [
    "entries written",
    "entries fsynced",
    "facts written",
    "facts fsynced",
    "fence looked for",
    "acknowledged",
]
ROLL_STEPS = ["segment begun", "facts written anew"]
SELF_SEAL_STEPS = ["own epoch measured", "own seal written", "own epoch sealed"]
SAID_S_MAX = 60
DECIDED_STEPS = {"fence looked for", "acknowledged"}


class Owners:
    """The parent of the owners; see ``tests.support.processes.ledger_owner``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, int] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.ledger_owner"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def use(self, directory: Path) -> None:
        """Have what is started from here on share another directory."""
        self._directory = directory
        self._running.clear()

    def start(self, name: str, epoch: int, **order: Any) -> None:
        answer = self._ask(
            do="start",
            name=name,
            epoch=epoch,
            root=str(self._directory / "ledgers"),
            log=str(self._directory / "log"),
            **order,
        )
        self._running[name] = answer["pid"]

    def resume(self, name: str) -> None:
        self._ask(do="resume", pid=self._running[name])

    def wait_stopped(self, name: str) -> None:
        assert self._ask(do="wait", pid=self._running[name]) == {"stopped": True}, name

    def wait_ended(self, name: str) -> None:
        assert self._ask(do="wait", pid=self._running[name]) == {"code": 0}, name

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait() == 0

    def _ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owners]:
    owners = Owners(tmp_path_factory.mktemp("unused"))
    yield owners
    owners.close()


@pytest.fixture
def owners(parent: Owners, tmp_path: Path) -> Owners:
    parent.use(tmp_path)
    return parent


@dataclass(slots=True)
class Account:
    """What the processes said, in the order in which they said it."""

    acknowledged: list[str] = field(default_factory=list)
    ended: dict[str, str] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    """Owner → the cursor that it found when it opened the ledger."""

    @classmethod
    def read(cls, log: Path) -> Account:
        account = cls()
        for line in log.read_text().splitlines():
            name, what, *rest = line.split(" ", 2)
            if what == "ack":
                account.acknowledged.append(rest[0])
            elif what == "fact":
                account.facts.setdefault(name, []).append(rest[0].split()[1])
            elif what == "opened":
                account.found[name] = json.loads(rest[0]).get(CURSOR, "")
            elif what in {"fenced", "done"}:
                account.ended[name] = what
        return account

    def late(self, old: str, successor: str) -> list[str]:
        """Return what ``old`` acknowledged after ``successor`` had begun to."""
        begun = [owner_of(entry) for entry in self.acknowledged].index(successor)
        return [entry for entry in self.acknowledged[begun:] if owner_of(entry) == old]


def owner_of(entry: str) -> str:
    return entry.partition("-")[0]


def number_of(entry: str) -> int:
    return int(entry.partition("-")[2]) if entry else -1


async def read_all(reader: LedgerReader) -> list[Entry]:
    found: list[Entry] = []
    after = BEFORE_ALL
    while entries := await reader.read(after, entries_max=100, bytes_max=1_000_000):
        found += entries
        after = entries[-1].position
    return found


def check_entries(account: Account, entries: list[Entry], order: list[str]) -> None:
    stored = [entry.payload.decode().strip("+") for entry in entries]
    assert len(set(account.acknowledged)) == len(account.acknowledged), "acknowledged twice"
    assert set(account.acknowledged) <= set(stored), "an acknowledged entry is lost"
    assert len(set(stored)) == len(stored), "an entry is there twice"
    assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)
    # Owners come one after another, and what each appended is whole from its first entry on.
    assert stored == [
        f"{name}-{number}"
        for name in order
        for number in range(sum(owner_of(entry) == name for entry in stored))
    ]
    epochs = [epoch_of(entry.position.ledger_id) for entry in entries]
    assert epochs == sorted(epochs)


def check_facts(account: Account, old: str, successor: str) -> None:
    """Every position that was acknowledged as durable to ``old`` is at or below its successor's."""
    told = account.facts.get(old, [])
    if told and owner_of(account.found[successor]) == old:
        assert number_of(account.found[successor]) >= number_of(told[-1]), "a fact is lost"
    else:
        assert not told, "a fact is lost"


async def check(directory: Path, order: list[str]) -> Account:
    """Read everything as a third owner and as a reader, and compare it with what was said."""
    account = Account.read(directory / "log")
    store = DiskLedgerStore(directory / "ledgers", broker_id="reader")
    try:
        reader = await store.open_reader(TOPIC, "")
        assert reader is not None
        read = await read_all(reader)
        ledger = await store.open(TOPIC, "", 1_000, topic_name=TOPIC_NAME)
        entries = await read_all(ledger)
        assert read == entries
        last_facts = account.facts[order[-1]]
        assert ledger.state[CURSOR].decode().strip("+") == last_facts[-1]
    finally:
        await store.close()
    check_entries(account, entries, order)
    return account


@pytest.mark.parametrize("occurrence", [1, 4])
@pytest.mark.parametrize("step", ROUND_STEPS)
async def test_an_owner_that_sleeps_through_a_takeover_loses_and_doubles_nothing(
    owners: Owners, tmp_path: Path, step: str, occurrence: int
) -> None:
    owners.start("a", 1, entries=0, stop_at=step, stop_after=occurrence)
    owners.wait_stopped("a")
    owners.start("b", 2, entries=3)
    owners.wait_ended("b")
    owners.resume("a")
    owners.wait_ended("a")

    account = await check(tmp_path, ["a", "b"])
    print(f"a stops at {step!r} (occurrence {occurrence}); b takes over and serves; a resumes")
    assert account.ended == {"a": "fenced", "b": "done"}
    late = account.late("a", "b")
    assert len(late) <= (1 if step in DECIDED_STEPS else 0)
    check_facts(account, "a", "b")


@pytest.mark.parametrize("step", ROLL_STEPS)
async def test_an_owner_that_sleeps_where_a_file_rolls_over_loses_nothing(
    owners: Owners, tmp_path: Path, step: str
) -> None:
    """The second segment, or the second file of facts, is there; nothing refers to it yet."""
    occurrence = 2 if step == "segment begun" else 1
    padding = 3_000 if step == "segment begun" else 400_000
    owners.start("a", 1, entries=0, padding=padding, stop_at=step, stop_after=occurrence)
    owners.wait_stopped("a")
    owners.start("b", 2, entries=3)
    owners.wait_ended("b")
    owners.resume("a")
    owners.wait_ended("a")

    account = await check(tmp_path, ["a", "b"])
    print(f"a stops at {step!r}; b takes over and serves; a resumes")
    assert account.ended == {"a": "fenced", "b": "done"}
    assert account.late("a", "b") == []
    check_facts(account, "a", "b")


@pytest.mark.parametrize("owner_step", ROUND_STEPS)
@pytest.mark.parametrize("successor_step", TAKEOVER_STEPS)
async def test_a_successor_that_sleeps_is_overtaken_by_a_later_one(
    owners: Owners, tmp_path: Path, owner_step: str, successor_step: str
) -> None:
    """Both the owner and its first successor are stopped; the second successor serves.

    The owner is resumed first. The first successor wakes up in the middle of its takeover, in
    which it may find epochs sealed, or their files removed, and gets no further.
    """
    owners.start("a", 1, entries=0, stop_at=owner_step, stop_after=3)
    owners.wait_stopped("a")
    owners.start("b", 2, entries=3, stop_at=successor_step)
    owners.wait_stopped("b")
    owners.start("c", 3, entries=3)
    owners.wait_ended("c")
    owners.resume("a")
    owners.wait_ended("a")
    owners.resume("b")
    owners.wait_ended("b")

    account = await check(tmp_path, ["a", "c"])
    print(f"a stops at {owner_step!r}, b at {successor_step!r}; c serves; a, then b resumes")
    assert account.ended == {"a": "fenced", "b": "fenced", "c": "done"}
    assert len(account.late("a", "c")) <= (1 if owner_step in DECIDED_STEPS else 0)
    check_facts(account, "a", "c")


@pytest.mark.parametrize("successor_step", TAKEOVER_STEPS)
async def test_an_owner_that_goes_on_while_a_successor_sleeps_is_fenced_at_the_fence(
    owners: Owners, tmp_path: Path, successor_step: str
) -> None:
    """The owner never stops: it appends under load while one successor sleeps and one serves."""
    owners.start("a", 1, entries=0)
    _wait_for(tmp_path / "log", "a ack a-5")
    owners.start("b", 2, entries=3, stop_at=successor_step)
    owners.wait_stopped("b")
    owners.start("c", 3, entries=3)
    owners.wait_ended("c")
    owners.resume("b")
    owners.wait_ended("b")
    owners.wait_ended("a")

    account = await check(tmp_path, ["a", "c"])
    print(f"a never stops; b stops at {successor_step!r}; c serves; b resumes")
    assert account.ended == {"a": "fenced", "b": "fenced", "c": "done"}
    check_facts(account, "a", "c")


@pytest.mark.parametrize("step", TAKEOVER_STEPS)
async def test_an_owner_that_sleeps_in_its_own_takeover_serves_when_nobody_came(
    owners: Owners, tmp_path: Path, step: str
) -> None:
    owners.start("a", 1, entries=3)
    owners.wait_ended("a")
    owners.start("b", 2, entries=3, stop_at=step)
    owners.wait_stopped("b")
    owners.resume("b")
    owners.wait_ended("b")

    account = await check(tmp_path, ["a", "b"])
    print(f"a is gone; b stops at {step!r} and resumes")
    assert account.ended == {"a": "done", "b": "done"}
    check_facts(account, "a", "b")


@pytest.mark.parametrize("step", SELF_SEAL_STEPS)
async def test_an_owner_that_sleeps_while_it_ends_its_epoch_loses_nothing(
    owners: Owners, tmp_path: Path, step: str
) -> None:
    owners.start("a", 1, entries=3, lets_go=True, stop_at=step)
    owners.wait_stopped("a")
    owners.start("b", 2, entries=3)
    owners.wait_ended("b")
    owners.resume("a")
    owners.wait_ended("a")

    account = await check(tmp_path, ["a", "b"])
    print(f"a lets go and stops at {step!r}; b takes over and serves; a resumes")
    assert account.ended == {"a": "done", "b": "done"}
    assert account.late("a", "b") == []
    check_facts(account, "a", "b")


@pytest.mark.parametrize("owner_step", SELF_SEAL_STEPS[:2])
@pytest.mark.parametrize("successor_step", TAKEOVER_STEPS)
async def test_an_owner_ends_its_epoch_in_the_middle_of_a_takeover(
    owners: Owners, tmp_path: Path, owner_step: str, successor_step: str
) -> None:
    """Each has measured, or sealed, what the other seals, or measures, meanwhile."""
    owners.start("a", 1, entries=3, lets_go=True, stop_at=owner_step)
    owners.wait_stopped("a")
    owners.start("b", 2, entries=3, stop_at=successor_step)
    owners.wait_stopped("b")
    owners.resume("a")
    owners.wait_ended("a")
    owners.resume("b")
    owners.wait_ended("b")

    account = await check(tmp_path, ["a", "b"])
    print(f"a lets go and stops at {owner_step!r}, b at {successor_step!r}; a, then b resumes")
    assert account.ended == {"a": "done", "b": "done"}
    check_facts(account, "a", "b")


def _wait_for(log: Path, line: str) -> None:
    """Wait until a process said something; it says it in a file that can only be looked at."""
    deadline = time.monotonic() + SAID_S_MAX
    while not log.exists() or line not in log.read_text().splitlines():
        assert time.monotonic() < deadline, f"nobody said {line}"
        time.sleep(0.005)
