"""Random histories of a subscription, every delivery checked against a model.

The model knows what was published, what is acknowledged (and how much of it durably), who was sent
what, and how many messages everybody may still be sent. From that it says of every delivery whether
it may happen; at the end of a history consumers that acknowledge everything must get everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.subscriptions.ack_set import all_open, mask_of, words_of
from brokers.domain.subscriptions.entry_buckets import bucket_hash
from brokers.domain.subscriptions.key_hash import key_slot
from brokers.ports.consumer import Dispatch
from brokers.service.subscriptions.subscription import Ack, KeySharedRequest, SubscriptionKind
from tests.support.brokers.subscription_world import FakeConsumer, SubscriptionWorld, settle
from tests.support.simulated.virtual_time import VirtualTimeLoop

T = TypeVar("T")
KEYS = ("a", "b", "c", "d", "e")
assert len({key_slot(key.encode()) for key in KEYS}) == len(KEYS), "keys are told apart by slot"
BUCKETS = ((0, 0x2FFF), (0x3000, 0x9FFF), (0xA000, 0xFFFF))
ENTRY_BUCKETS = KeySharedRequest(is_sticky=True, ranges=BUCKETS, uses_entry_buckets=True)


def bucket_of(key: str) -> int:
    """Return the number of a key's entry bucket."""
    return next(n for n, (_, end) in enumerate(BUCKETS) if bucket_hash(key.encode()) <= end)


assert {bucket_of(key) for key in KEYS} == {0, 1, 2}, "each bucket has a key"


@dataclass
class Published:
    """An entry as the model sees it; ``open`` and ``durably_open`` have a bit per message."""

    position: Position
    count: int
    key: str
    open: int = 0
    durably_open: int = 0

    def __post_init__(self) -> None:
        self.open = self.durably_open = all_open(self.count)


@dataclass
class Client:
    """A consumer as the model sees it."""

    fake: FakeConsumer
    permits: int = 0
    held: dict[Position, Dispatch] = field(default_factory=dict)
    """What it was sent and has neither acknowledged nor given back."""
    last: Position = BEFORE_ALL
    """Of Exclusive and Failover: what it was sent last since it began at the cursor."""


class SubscriptionMachine(RuleBasedStateMachine):
    """One subscription's life."""

    kind: ClassVar[SubscriptionKind]
    key_shared: ClassVar[KeySharedRequest | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.errors: list[BaseException] = []
        self.loop.set_exception_handler(
            lambda _, context: self.errors.append(context.get("exception", AssertionError(context)))
        )
        self.entries: dict[Position, Published] = {}
        self.clients: list[Client] = []
        self.waiters: list[tuple[asyncio.Future[None], dict[Position, int]]] = []
        # A few entries fill a segment, so that positions have gaps.
        self.world = SubscriptionWorld(segment_bytes=250)

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        async def settled() -> T:
            result = await action
            await settle()
            return result

        result = self.loop.run_until_complete(settled())
        if self.errors:
            raise self.errors[0]
        self.note_what_is_durable()
        return result

    def settle(self) -> None:
        self.run(asyncio.sleep(0))

    def teardown(self) -> None:
        try:
            if hasattr(self.world, "subscription") and not self.errors:
                self.everything_arrives()
                self.run(self.world.subscription.close(""))
        finally:
            self.loop.close()

    # What happens --------------------------------------------------------------------------

    @initialize()
    def open(self) -> None:
        self.run(self.world.open(self.kind))

    @rule(
        key=st.sampled_from(KEYS),
        messages=st.sampled_from((1, 1, 3)),
        count=st.integers(1, 6),
        is_stamped=st.booleans(),
    )
    def publish(self, key: str, messages: int, count: int, is_stamped: bool) -> None:
        hash_ = bucket_hash(key.encode())

        async def publish() -> None:
            # Known before they can be delivered: positions follow from those before.
            for _ in range(count):
                self.expected = (key, messages)
                (position,) = await self.world.publish(
                    messages=messages, key=key, stamp=(hash_, hash_) if is_stamped else None
                )
                self.entries.setdefault(position, Published(position, messages, key))

        self.run(publish())

    @precondition(
        lambda self: len(self.clients) < (1 if self.kind is SubscriptionKind.EXCLUSIVE else 4)
    )
    @rule(permits=st.integers(0, 8), priority_level=st.integers(0, 1))
    def connect(self, permits: int, priority_level: int) -> None:
        async def join() -> None:
            joined = self.world.join(priority_level=priority_level, key_shared=self.key_shared)
            client = Client(joined)
            client.fake.watch = lambda _, dispatch: self.check(client, dispatch)
            self.clients.append(client)
            if self.is_active(client):
                self.begin_at_cursor(client)
            if permits:
                client.permits = permits
                client.fake.flow(permits)

        self.run(join())

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 3))
    def disconnect(self, index: int) -> None:
        client = self.clients.pop(index % len(self.clients))
        was_active = self.is_active(client)

        async def leave() -> None:
            client.fake.leave()
            for other in self.clients:
                if was_active and self.is_active(other):
                    self.begin_at_cursor(other)

        self.run(leave())

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 3), permits=st.integers(1, 10))
    def flow(self, index: int, permits: int) -> None:
        client = self.clients[index % len(self.clients)]
        client.permits += permits
        self.run(_call(client.fake.flow, permits))

    @precondition(lambda self: self.clients)
    @rule(index=st.integers(0, 3))
    def stop_or_go_on_reading(self, index: int) -> None:
        client = self.clients[index % len(self.clients)]
        if client.fake.is_writable:
            client.fake.is_writable = False
        else:
            self.run(_call(client.fake.resume))

    @rule()
    def heat_or_cool_the_ledger(self) -> None:
        self.world.ledger.is_cold = not self.world.ledger.is_cold

    @rule(is_held=st.booleans())
    def hold_or_release_storage(self, is_held: bool) -> None:
        if is_held:
            self.world.ledger.hold_state()
        else:
            self.run(_call(self.world.ledger.release_state))

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(data=st.data(), is_awaited=st.booleans())
    def acknowledge(self, data: st.DataObject, is_awaited: bool) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.held]))
        positions = data.draw(
            st.lists(st.sampled_from(sorted(client.held)), unique=True, min_size=1, max_size=6)
        )
        acks = []
        for position in positions:
            entry = self.entries[position]
            mask = data.draw(st.integers(0, all_open(entry.count))) if entry.count > 1 else 0
            acks.append(Ack(position, words_of(mask), entry.count))
        self.apply(client, acks, is_awaited=is_awaited)

    @precondition(lambda self: self.kind.is_single_active and any(c.held for c in self.clients))
    @rule(data=st.data(), is_awaited=st.booleans())
    def acknowledge_up_to(self, data: st.DataObject, is_awaited: bool) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.held]))
        position = data.draw(st.sampled_from(sorted(client.held)))
        mask = data.draw(st.integers(0, all_open(self.entries[position].count) >> 1))
        self.apply(client, [Ack(position, words_of(mask))], is_awaited=is_awaited, up_to=True)

    @precondition(lambda self: any(client.held for client in self.clients))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([each for each in self.clients if each.held]))
        positions = data.draw(
            st.none()
            | st.lists(st.sampled_from(sorted(client.held)), unique=True, min_size=1, max_size=4)
        )

        async def give_back() -> None:
            if positions is None or self.kind.is_single_active:
                if not self.kind.is_single_active:
                    client.held.clear()
                elif self.is_active(client):
                    self.begin_at_cursor(client)
                client.fake.redeliver_all()
            else:
                for position in positions:
                    del client.held[position]
                client.fake.nack(*positions)

        self.run(give_back())

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        up_to = data.draw(st.sampled_from(sorted(self.entries)))

        async def expire() -> None:
            for entry in self.entries.values():
                if entry.position <= up_to:
                    entry.open = 0
            for client in self.clients:
                for position in [each for each in client.held if each <= up_to]:
                    del client.held[position]
            self.world.subscription.pass_over(up_to)

        self.run(expire())

    @rule(is_crash=st.booleans())
    def change_the_owner(self, is_crash: bool) -> None:
        async def change() -> None:
            if not is_crash:
                self.world.ledger.release_state()
                await self.world.subscription.close("")
            await settle()
            self.note_what_is_durable()
            # From here on only what the next owner finds counts.
            await self.world.take_over()

        self.run(change())
        self.clients.clear()
        self.waiters.clear()
        for entry in self.entries.values():
            if not is_crash:
                entry.durably_open = entry.open
            self.learn_from_storage(entry)

    # What the model makes of it -------------------------------------------------------------

    def apply(
        self, client: Client, acks: list[Ack], *, is_awaited: bool, up_to: bool = False
    ) -> None:
        async def acknowledge() -> None:
            before_it = {each.position: each.open for each in self.entries.values()}
            for ack in acks:
                for entry in self.entries.values():
                    if up_to and entry.position < ack.position:
                        entry.open = 0
                self.entries[ack.position].open &= mask_of(ack.ack_set)
            for other in self.clients:
                for position in list(other.held):
                    if not self.entries[position].open:
                        del other.held[position]
            done = self.world.subscription.acknowledge(
                client.fake.consumer, acks, is_cumulative=up_to, is_awaited=is_awaited
            )
            if is_awaited:
                # All that was acknowledged before is in the same write.
                after = {each.position: each.open for each in self.entries.values()}
                assert before_it.keys() == after.keys()
                self.waiters.append((done, after))

        self.run(acknowledge())

    def note_what_is_durable(self) -> None:
        for done, opened in self.waiters:
            if done.done() and not done.cancelled() and done.exception() is None:
                for position, mask in opened.items():
                    self.entries[position].durably_open &= mask
        self.waiters = [(done, opened) for done, opened in self.waiters if not done.done()]

    def learn_from_storage(self, entry: Published) -> None:
        """After a change of owners: nothing durable is lost, and more may have been stored."""
        cursor = self.world.subscription.cursor
        stored = cursor.partial.get(entry.position, all_open(entry.count))
        stored = 0 if cursor.is_acked(entry.position) else stored
        assert stored & ~entry.durably_open == 0, f"{entry} was durable and is open again"
        assert entry.open & ~stored == 0, f"{entry} was never acknowledged and is not open"
        entry.open = entry.durably_open = stored

    def is_active(self, client: Client) -> bool:
        if not self.kind.is_single_active:
            return False
        return self.world.subscription._dispatcher.active is client.fake.consumer  # type: ignore[attr-defined]

    def begin_at_cursor(self, client: Client) -> None:
        client.last = BEFORE_ALL

    def check(self, client: Client, dispatch: Dispatch) -> None:
        position = dispatch.entry.position
        if position not in self.entries:
            key, messages = self.expected
            self.entries[position] = Published(position, messages, key)
        entry = self.entries[position]
        assert client in self.clients, "it was sent to somebody who left"
        assert client.permits > 0, "nobody asked for it"
        assert entry.open, f"{entry} is acknowledged"
        assert (mask_of(dispatch.ack_set) or all_open(entry.count)) == entry.open
        client.permits -= entry.open.bit_count()
        earlier = [each for each in self.entries.values() if each.position < position and each.open]
        if self.kind.is_single_active:
            assert self.is_active(client)
            skipped = [each for each in earlier if each.position > client.last]
            assert not skipped, f"{entry} comes before {skipped}"
            assert position > client.last or not client.held, "order"
            client.last = position
        else:
            assert all(position not in each.held for each in self.clients), "two have it"
        if self.kind is SubscriptionKind.KEY_SHARED:
            self.check_key(client, entry, earlier)
        client.held[position] = dispatch

    def group_of(self, entry: Published) -> str | int:
        """What is dispatched in order, to one consumer at a time."""
        return entry.key if self.key_shared is None else bucket_of(entry.key)

    def check_key(self, client: Client, entry: Published, earlier: list[Published]) -> None:
        group = self.group_of(entry)
        for other in self.clients:
            if other is not client:
                others = [held for held in other.held if self.group_of(self.entries[held]) == group]
                assert not others, f"{entry} goes to another consumer than {others}"
        waiting = [
            each
            for each in earlier
            if self.group_of(each) == group and each.position not in client.held
        ]
        assert not waiting, f"{entry} overtakes {waiting}"

    def everything_arrives(self) -> None:
        self.run(_call(self.world.ledger.release_state))
        for client in self.clients:
            client.permits += 10_000
            self.run(_call(client.fake.flow, 10_000))
            self.run(_call(client.fake.resume))
        if not self.clients:
            self.connect(8, 0)
            self.flow(0, 10_000)
        for _ in range(len(self.entries) + 2):
            for client in self.clients:
                acks = [Ack(position) for position in sorted(client.held)]
                if acks:
                    self.apply(client, acks, is_awaited=True)
            self.settle()
        left = [each for each in self.entries.values() if each.open]
        assert not left, f"lost: {left}"
        assert self.world.subscription.is_drained
        assert self.world.subscription.stats().unacked_messages == 0
        assert not any(client.fake.consumer.unacked for client in self.clients)


async def _call(action: Any, *arguments: Any) -> None:
    action(*arguments)


@pytest.mark.parametrize("kind", list(SubscriptionKind), ids=lambda kind: kind.name)
def test_no_history_loses_repeats_or_reorders(kind: SubscriptionKind) -> None:
    run_histories(f"{kind.name}Machine", kind=kind)


def test_no_history_of_entry_buckets_loses_repeats_or_reorders() -> None:
    run_histories("EntryBucketMachine", kind=SubscriptionKind.KEY_SHARED, key_shared=ENTRY_BUCKETS)


def run_histories(name: str, **settings_of_machine: Any) -> None:
    machine = type(name, (SubscriptionMachine,), settings_of_machine)
    case = machine.TestCase  # type: ignore[attr-defined]
    case.settings = settings(
        max_examples=50,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    case("runTest").runTest()
