import pytest

from discovery.domain.partition_counts import PartitionCounts


def test_a_count_is_reported_until_its_window_ends():
    counts = PartitionCounts(counts_max=10)
    counts.put("a", 4, now=0.0, until=100.0)

    assert counts.get("a", 99.9) == 4
    assert counts.get("a", 100.0) is None
    assert counts.get("b", 0.0) is None


def test_the_later_word_counts():
    counts = PartitionCounts(counts_max=10)
    counts.put("a", 4, now=0.0, until=100.0)
    counts.put("a", 0, now=0.0, until=200.0)

    assert counts.get("a", 150.0) == 0


@pytest.mark.parametrize("names", [4, 5, 400])
def test_partition_counts_max_are_kept_and_one_more_drops_the_older_half(names):
    counts = PartitionCounts(counts_max=4)
    for number in range(names):
        counts.put(f"n{number}", number, now=0.0, until=100.0)
        assert len(counts) <= 4
        assert counts.get(f"n{number}", 0.0) == number
    known = [number for number in range(names) if counts.get(f"n{number}", 0.0) == number]
    assert known == {4: [0, 1, 2, 3], 5: [2, 3, 4], 400: [396, 397, 398, 399]}[names]


def test_putting_the_same_name_again_drops_no_others():
    counts = PartitionCounts(counts_max=4)
    counts.put("a", 1, now=0.0, until=100.0)
    counts.put("b", 2, now=0.0, until=100.0)

    for _ in range(10):
        counts.put("b", 2, now=0.0, until=100.0)

    assert counts.get("a", 0.0) == 1


def test_a_forgotten_count_is_not_returned_in_whatever_generation_it_was():
    counts = PartitionCounts(counts_max=4)
    for name in ("a", "b", "c", "d"):
        counts.put(name, 1, now=0.0, until=100.0)

    counts.forget(["a", "d", "unknown"])

    assert [counts.get(name, 0.0) for name in ("a", "b", "c", "d")] == [None, 1, 1, None]
    assert counts.changes == 1


def test_what_is_forgotten_counts_as_a_change_though_nothing_is_cached():
    counts = PartitionCounts(counts_max=4)

    counts.forget(["a"])

    assert counts.changes == 1


def test_counts_are_remembered_from_the_first_to_the_end_of_the_last():
    counts = PartitionCounts(counts_max=4)
    heard: list[str] = []
    counts.on_remembered(lambda: heard.append("one"))
    counts.on_remembered(lambda: heard.append("another"))
    assert not counts.remembers(0.0)

    counts.put("a", 1, now=0.0, until=10.0)
    counts.put("b", 1, now=5.0, until=15.0)

    assert heard == ["one", "another"]
    assert counts.remembers(14.9)
    assert not counts.remembers(15.0)
    counts.put("a", 1, now=15.0, until=25.0)
    assert heard == ["one", "another"] * 2
