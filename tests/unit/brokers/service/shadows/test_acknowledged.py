"""What shadows have acknowledged, and what their source keeps of it."""

from __future__ import annotations

import pytest

from brokers.adapters.ledger.memory_ledger import MemoryLedgers, MemoryLedgerStore
from brokers.domain.position import BEFORE_ALL, Position
from brokers.ports.ledger import TopicLedger
from brokers.service.shadows.acknowledged import KEEPS_NOTHING, AcknowledgedByShadows

A, B = "persistent://t/ns/a", "persistent://t/ns/b"


async def opened(disk: MemoryLedgers, epoch: int) -> TopicLedger:
    return await MemoryLedgerStore(disk).open("topic", "", epoch, topic_name="x")


async def test_the_slowest_shadow_counts_and_one_that_never_reported_has_nothing() -> None:
    shadows = AcknowledgedByShadows(await opened(MemoryLedgers(), 1))
    shadows.report(A, Position(3, 4))

    assert shadows.by_all([A]) == Position(3, 4)
    assert shadows.by_all([A, B]) == BEFORE_ALL
    shadows.report(B, Position(3, 1))
    assert shadows.by_all([A, B]) == Position(3, 1)


async def test_a_shadow_without_durable_subscriptions_keeps_nothing() -> None:
    shadows = AcknowledgedByShadows(await opened(MemoryLedgers(), 1))
    shadows.report(A, None)
    shadows.report(B, Position(3, 1))

    assert shadows.by_all([A]) == KEEPS_NOTHING
    assert shadows.by_all([A, B]) == Position(3, 1)
    assert shadows.by_all([]) == KEEPS_NOTHING


async def test_the_next_owner_knows_what_was_stored_and_nothing_else() -> None:
    disk = MemoryLedgers()
    ledger = await opened(disk, 1)
    shadows = AcknowledgedByShadows(ledger)
    shadows.report(A, Position(3, 4))
    shadows.report(B, None)
    shadows.store([A, B])
    shadows.report(A, Position(3, 9))
    await ledger.close()

    after = AcknowledgedByShadows(await opened(disk, 2))

    assert (after.of(A), after.of(B)) == (Position(3, 4), KEEPS_NOTHING)


async def test_what_is_stored_goes_with_the_shadow_s_name_in_the_list() -> None:
    ledger = await opened(MemoryLedgers(), 1)
    shadows = AcknowledgedByShadows(ledger)
    shadows.report(A, Position(3, 4))
    shadows.report(B, Position(3, 5))
    shadows.store([A, B])
    assert sorted(ledger.state) == [f"shadow/{A}", f"shadow/{B}"]

    shadows.store([B])
    shadows.forget_all_but([B])

    assert sorted(ledger.state) == [f"shadow/{B}"]
    assert shadows.of(A) is None
    shadows.store([])
    assert not ledger.state
    assert shadows.of(B) == Position(3, 5), "it is only not stored any more"


async def test_only_what_changed_is_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = await opened(MemoryLedgers(), 1)
    shadows = AcknowledgedByShadows(ledger)
    shadows.report(A, Position(3, 4))
    shadows.store([A])
    stored: list[str] = []
    monkeypatch.setattr(ledger, "put_state", lambda key, _: stored.append(key))

    shadows.store([A])
    assert stored == []
    shadows.report(A, Position(3, 5))
    shadows.store([A])
    assert stored == [f"shadow/{A}"]


@pytest.mark.parametrize("stored", [b"x", b"1", b"1:2:3", b"1:x", b"\xff"])
async def test_a_stored_value_that_is_no_position_is_an_error(stored: bytes) -> None:
    ledger = await opened(MemoryLedgers(), 1)
    ledger.put_state(f"shadow/{A}", stored)

    with pytest.raises(ValueError, match=r".*"):
        AcknowledgedByShadows(ledger)
