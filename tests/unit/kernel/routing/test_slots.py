import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import RING_POINTS_MAX, SHARDS_MAX, SLOT_COUNT
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.slots import (
    SHARD_ID_MAX,
    SLOT_TABLE_BYTES,
    SlotTable,
    have_all_slots,
    initial_table,
    preference_order,
    rebalanced,
    slots_digest,
)

shard_sets = st.sets(st.integers(1, 40), min_size=1, max_size=12)


def spread(table: SlotTable, shard_ids: set[int]) -> int:
    counts = Counter(table.owners)
    sizes = [counts[shard_id] for shard_id in shard_ids]
    assert sum(sizes) == SLOT_COUNT, "a slot belongs to none of the shards"
    return max(sizes) - min(sizes)


def moved(before: SlotTable, after: SlotTable) -> int:
    return sum(old != new for old, new in zip(before.owners, after.owners, strict=True))


def fewest_moves(table: SlotTable, shard_ids: set[int]) -> int:
    """Moves that no even distribution over ``shard_ids`` can do without, reckoned from sizes."""
    counts = Counter(table.owners)
    share, remainder = divmod(SLOT_COUNT, len(shard_ids))
    kept = sorted((min(counts[shard_id], share + 1) for shard_id in shard_ids), reverse=True)
    return SLOT_COUNT - sum(kept[:remainder]) - sum(min(size, share) for size in kept[remainder:])


# The table ------------------------------------------------------------------------------------


def test_a_key_belongs_to_the_shard_that_has_its_slot() -> None:
    table = initial_table({1, 2, 3})

    assert table.shard_for_key("t/n/x") == table.shard_of(slot_of("t/n/x"))


def test_the_slots_of_all_shards_are_all_slots() -> None:
    table = initial_table({4, 9})

    assert sorted(table.slots_of(4) + table.slots_of(9)) == list(range(SLOT_COUNT))
    assert table.shard_ids == (4, 9)
    assert table.slots_of(5) == ()


def test_ranges_are_the_fewest_that_cover_the_slots() -> None:
    owners = [1] * SLOT_COUNT
    owners[3:6] = [2, 2, 2]
    owners[SLOT_COUNT - 1] = 2
    table = SlotTable(7, tuple(owners))

    assert table.ranges_of(2) == ((3, 5), (SLOT_COUNT - 1, SLOT_COUNT - 1))
    assert table.ranges_of(1) == ((0, 2), (6, SLOT_COUNT - 2))
    assert table.ranges_of(3) == ()


def test_a_table_survives_its_bytes() -> None:
    table = initial_table({1, 300, SHARD_ID_MAX})

    assert len(table.to_bytes()) == SLOT_TABLE_BYTES == 2 * SLOT_COUNT
    assert SlotTable.from_bytes(table.version, table.to_bytes()) == table


@pytest.mark.parametrize("length", [0, SLOT_TABLE_BYTES - 1, SLOT_TABLE_BYTES + 1])
def test_bytes_of_another_length_are_no_table(length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} bytes"):
        SlotTable.from_bytes(1, b"\x01" * length)


def test_a_table_in_which_a_slot_has_no_owner_is_refused() -> None:
    packed = bytearray(initial_table({1}).to_bytes())
    packed[10:12] = b"\x00\x00"

    with pytest.raises(ValueError, match="slot 5 has no owner"):
        SlotTable.from_bytes(1, bytes(packed))


@pytest.mark.parametrize("slot", [-1, SLOT_COUNT])
def test_a_slot_out_of_range_is_a_broken_caller(slot: int) -> None:
    with pytest.raises(AssertionError, match="out of range"):
        initial_table({1}).shard_of(slot)


@pytest.mark.parametrize("shard_ids", [set(), {0, 1}, {-1}, {SHARD_ID_MAX + 1}])
def test_an_impossible_set_of_shards_is_a_broken_caller(shard_ids: set[int]) -> None:
    with pytest.raises(AssertionError):
        initial_table(shard_ids)


def test_there_may_be_as_many_shards_as_the_limit() -> None:
    most = set(range(1, SHARDS_MAX + 1))
    assert spread(initial_table(most), most) == 0

    with pytest.raises(AssertionError, match="at most 4096"):
        initial_table(range(1, SHARDS_MAX + 2))


# Placement ------------------------------------------------------------------------------------


def test_the_first_table_never_changes() -> None:
    """A cluster stores its table, but tests, tools and documents rely on the first one."""
    table = initial_table({1, 2, 3, 4})

    assert table.version == 1
    assert hashlib.sha256(table.to_bytes()).hexdigest() == (
        "6aa50c1a964ffccf791434a347a07b53ffa9875b1b1db65b78f14fdaedaea881"
    )


@given(shard_sets)
@settings(max_examples=20)
def test_the_first_table_is_even_whatever_the_shards(shard_ids: set[int]) -> None:
    assert spread(initial_table(shard_ids), shard_ids) <= 1


@given(st.lists(shard_sets, min_size=2, max_size=4))
@settings(max_examples=8)
def test_a_change_of_shards_moves_no_slot_without_need(changes: list[set[int]]) -> None:
    table = initial_table(changes[0])
    for shard_ids in changes[1:]:
        after = rebalanced(table, shard_ids)

        assert after.version == table.version + 1
        assert spread(after, shard_ids) <= 1
        assert moved(table, after) == fewest_moves(table, shard_ids)
        assert after == rebalanced(table, sorted(shard_ids, reverse=True)), "order matters"
        table = after


def test_adding_a_shard_moves_only_what_it_gets() -> None:
    before = initial_table({1, 2, 3, 4})

    after = rebalanced(before, {1, 2, 3, 4, 5})

    assert moved(before, after) == len(after.slots_of(5)) == SLOT_COUNT // 5


def test_a_shard_that_is_added_gets_what_the_ring_would_have_given_it() -> None:
    """So a table that grew shard by shard stays close to one that was made for all of them."""
    grown = rebalanced(initial_table({1, 2, 3}), {1, 2, 3, 4})

    assert moved(grown, initial_table({1, 2, 3, 4})) < SLOT_COUNT // 10


def test_removing_a_shard_moves_only_what_it_had() -> None:
    before = initial_table({1, 2, 3, 4})

    after = rebalanced(before, {1, 2, 3})

    assert moved(before, after) == len(before.slots_of(4)) == SLOT_COUNT // 4


def test_a_lopsided_table_is_evened_out() -> None:
    lopsided = SlotTable(9, (1,) * SLOT_COUNT)

    after = rebalanced(lopsided, {1, 2})

    assert (len(after.slots_of(1)), len(after.slots_of(2))) == (SLOT_COUNT // 2, SLOT_COUNT // 2)


# Preference -----------------------------------------------------------------------------------


NODES = ["node-1", "node-2", "node-3", "node-4", "node-5"]


@given(st.text(max_size=20), st.permutations(NODES))
def test_every_node_has_a_place_whatever_the_order_given(key: str, nodes: list[str]) -> None:
    order = preference_order(key, nodes)

    assert sorted(order) == NODES
    assert order == preference_order(key, NODES)


@given(st.text(max_size=20), st.sampled_from(NODES))
def test_a_node_that_goes_leaves_the_others_in_order(key: str, gone: str) -> None:
    remaining = [node for node in preference_order(key, NODES) if node != gone]

    assert preference_order(key, [node for node in NODES if node != gone]) == remaining


def test_first_places_are_spread_over_the_nodes() -> None:
    first = Counter(preference_order(f"key-{number}", NODES)[0] for number in range(2_000))

    assert min(first.values()) > 300


def test_no_node_has_no_place() -> None:
    assert preference_order("key", []) == []


def test_the_ring_stays_small_however_many_nodes() -> None:
    nodes = [f"node-{number}" for number in range(RING_POINTS_MAX // 1_000 * 3)]

    assert len(preference_order("key", nodes)) == len(nodes)


@given(st.lists(st.integers(1, 5), min_size=SLOT_COUNT // 512, max_size=SLOT_COUNT // 512))
def test_digests_add_up_to_all_slots_exactly_if_each_is_at_one_shard(owners):
    blocks = {
        shard_id: [(n * 512, n * 512 + 511) for n, owner in enumerate(owners) if owner == shard_id]
        for shard_id in range(1, 6)
    }
    digests = [slots_digest(ranges) for ranges in blocks.values()]

    assert have_all_slots(digests)
    assert not have_all_slots([*digests, slots_digest([(7, 7)])])
    assert not have_all_slots([*digests[1:], slots_digest([*blocks[1], (9, 9)])])
    assert have_all_slots([None, *digests[1:]]), "a release whose slots never move"
