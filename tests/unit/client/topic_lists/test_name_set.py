"""A compact set of names, against a plain one: members, order, hash, memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.topic_lists import name_set
from nextgen.client.topic_lists.name_set import NameSet
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
def test_its_blocks_can_be_walked_by_key():
    names = NameSet()
    expected = names.add(f"{PREFIX}t-{number}" for number in range(200))
    walked, key = [], b""
    while key is not None:
        block, key = names.behind(key)
        walked += block
    assert walked == expected
    assert NameSet().behind(b"") == ([], None)


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
