"""A compact set of names, against a plain one: members, order, hash, memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.topic_lists import name_set
from nextgen.client.topic_lists.name_set import NameSet
from nextgen.client.topic_lists.name_snapshot import differences
from nextgen.pulsar.topic_lists.hash import sort_key, topics_hash

PREFIX = "persistent://t/n/"

LOCAL_NAMES = st.text(
    st.sampled_from(["a", "b", ",", "é", "\ue000", "\uffff", "\U0001f600", "\U0010ffff"]),
    min_size=1,
    max_size=5,
)
CHANGES = st.lists(
    st.tuples(st.booleans(), st.lists(LOCAL_NAMES, min_size=1, max_size=20)), max_size=12
)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and runs so small that a few names have many of them."""
    monkeypatch.setattr(name_set, "BLOCK_BYTES_MAX", 96)
    monkeypatch.setattr(name_set, "RUN_BLOCKS_MAX", 4)


def check(names: NameSet, plain: set[str]) -> None:
    assert list(names) == sorted(plain, key=sort_key)
    assert len(names) == len(plain)
    assert names.hash == topics_hash(plain)
    assert names.text_bytes == sum(len(name.encode()) + 1 for name in plain)


@pytest.mark.usefixtures("small_blocks")
@given(CHANGES)
def test_it_equals_a_plain_set_after_any_changes(changes):
    names, plain = NameSet(), set()
    for is_added, locals_ in changes:
        changed = {PREFIX + local for local in locals_}
        if is_added:
            expected = changed - plain
            assert names.add(changed) == sorted(expected, key=sort_key)
            plain |= changed
        else:
            expected = changed & plain
            assert names.discard(changed) == sorted(expected, key=sort_key)
            plain -= changed
        check(names, plain)
        assert all((name in names) == (name in plain) for name in changed)


@pytest.mark.usefixtures("small_blocks")
def test_long_histories_of_many_blocks_equal_a_plain_set():
    chance = random.Random(7)
    names, plain = NameSet(), set()
    for round_ in range(300):
        batch = {f"{PREFIX}t-{chance.randrange(600)}" for _ in range(chance.choice([1, 2, 40]))}
        if chance.random() < (0.7 if round_ < 150 else 0.3):
            names.add(batch)
            plain |= batch
        else:
            names.discard(batch)
            plain -= batch
        if chance.random() < 0.3:
            check(names, plain)
    check(names, plain)
    names.discard(plain)
    check(names, set())


@pytest.mark.usefixtures("small_blocks")
@given(CHANGES, CHANGES)
def test_the_differences_of_two_snapshots_lead_from_one_to_the_other(earlier, later):
    names = NameSet()
    changed(names, earlier)
    before, were = names.snapshot(), set(names)
    changed(names, later)
    after, are = names.snapshot(), set(names)
    parts = list(differences(before, after))

    assert [name for new, _ in parts for name in new] == sorted(are - were, key=sort_key)
    assert [name for _, gone in parts for name in gone] == sorted(were - are, key=sort_key)
    assert (set(before), len(before), before.hash) == (were, len(were), topics_hash(were))
    assert after.text_bytes == names.text_bytes


def changed(names: NameSet, changes) -> None:
    for is_added, locals_ in changes:
        whole = [PREFIX + local for local in locals_]
        if is_added:
            names.add(whole)
        else:
            names.discard(whole)


def test_a_difference_reads_replaced_blocks_only():
    names = NameSet()
    everything = names.add(f"{PREFIX}topic-{number:06d}" for number in range(20_000))
    before = names.snapshot()
    assert names.snapshot() is before
    names.discard(everything[:1])
    after = names.snapshot()

    assert after is not before
    assert len(set(map(id, after.blocks)).difference(map(id, before.blocks))) == 1
    assert list(differences(before, after)) == [([], everything[:1])]


def test_blocks_that_a_snapshot_keeps_count_until_it_is_gone():
    names = NameSet()
    everything = names.add(f"{PREFIX}topic-{number:06d}" for number in range(20_000))
    before = names.snapshot()
    size_bytes = names.size_bytes
    names.discard(everything[:1])
    assert names.size_bytes > size_bytes + name_set.BLOCK_BYTES_MAX // 4
    for _ in range(100):
        names.add(everything[:1])
        names.discard(everything[:1])
    assert names.size_bytes <= size_bytes + before.text_bytes
    del before
    assert names.size_bytes < size_bytes


def test_a_set_whose_names_were_deleted_keeps_no_small_blocks():
    names = NameSet()
    everything = names.add(f"{PREFIX}topic-{number:06d}" for number in range(20_000))
    names.discard(everything[number] for number in range(20_000) if number % 100)
    check(names, set(everything[::100]))
    assert names.size_bytes < 3 * names.text_bytes


def test_names_take_little_more_memory_than_their_bytes():
    names = NameSet()
    chance = random.Random(1)
    numbers = list(range(20_000))
    chance.shuffle(numbers)
    for start in range(0, len(numbers), 500):
        names.add(f"{PREFIX}topic-{number:06d}" for number in numbers[start : start + 500])
    assert names.size_bytes < 1.15 * names.text_bytes
