"""What a public watch may be about, and which shards have something to tell it."""

import pytest

from discovery.domain.watch_scope import WatchedKind, check_prefix, parse_scope, slots_digests
from nextgen.kernel.limits.cluster import TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.limits.stream import WATCH_NAMES_MAX
from nextgen.kernel.routing.names import InvalidName
from nextgen.kernel.routing.slots import initial_table

TABLE = initial_table([1, 2, 3])
DIGESTS = slots_digests(TABLE, [1, 2, 3])


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (WatchedKind.TENANTS, ""),
        (WatchedKind.TENANTS, "ac-me.1"),
        (WatchedKind.NAMESPACES, "acme"),
        (WatchedKind.NAMESPACES, "acme/"),
        (WatchedKind.NAMESPACES, "acme/ord"),
        (WatchedKind.TOPICS, ""),
        (WatchedKind.TOPICS, "pers"),
        (WatchedKind.TOPICS, "non-persistent:/"),
        (WatchedKind.TOPICS, "persistent://"),
        (WatchedKind.TOPICS, "persistent://acme"),
        (WatchedKind.TOPICS, "persistent://acme/"),
        (WatchedKind.TOPICS, "persistent://acme/orders/"),
        (WatchedKind.TOPICS, "persistent://acme/orders/größe x"),
        (WatchedKind.TOPICS, "topic://acme/orders/a/b"),
        (WatchedKind.ASSIGNMENTS, "persistent://acme/orders/x-partition-"),
    ],
)
def test_a_prefix_that_can_begin_a_name_is_taken(kind, prefix):
    check_prefix(kind, prefix)


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (WatchedKind.TENANTS, "acme/"),
        (WatchedKind.TENANTS, "a b"),
        (WatchedKind.NAMESPACES, "/orders"),
        (WatchedKind.NAMESPACES, "acme/orders/"),
        (WatchedKind.NAMESPACES, "acme\n"),
        (WatchedKind.TOPICS, "acme/orders/"),
        (WatchedKind.TOPICS, "ftp://acme"),
        (WatchedKind.TOPICS, "Persistent://acme"),
        (WatchedKind.TOPICS, "persistent:///"),
        (WatchedKind.TOPICS, "persistent://acme//x"),
        (WatchedKind.TOPICS, "persistent://ac me/"),
        (WatchedKind.TOPICS, "persistent://acme/or ders/"),
        (WatchedKind.ASSIGNMENTS, "persistent://acme/orders/a\x00"),
        (WatchedKind.ASSIGNMENTS, "persistent://acme/orders/\ud800"),
    ],
)
def test_a_prefix_that_begins_no_name_is_refused_with_what_it_is(kind, prefix):
    with pytest.raises(InvalidName, match="begins with"):
        check_prefix(kind, prefix)


def test_a_prefix_is_bounded():
    longest = "persistent://t/n/".ljust(TOPIC_TEXT_CHARACTERS_MAX, "x")
    check_prefix(WatchedKind.TOPICS, longest)
    with pytest.raises(InvalidName, match=str(TOPIC_TEXT_CHARACTERS_MAX)):
        check_prefix(WatchedKind.TOPICS, longest + "x")


def test_names_are_canonical_and_each_is_there_once():
    spellings = ["x", "public/default/x", "PERSISTENT://public/default/x"]
    scope = parse_scope(WatchedKind.TOPICS, "", spellings)
    assert scope.names == {"persistent://public/default/x": "public/default/x"}


def test_a_partition_has_an_assignment_and_is_no_topic():
    name = "persistent://t/n/x-partition-3"
    assert list(parse_scope(WatchedKind.ASSIGNMENTS, "", [name]).names) == [name]
    with pytest.raises(InvalidName, match="part of a topic"):
        parse_scope(WatchedKind.TOPICS, "", [name])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (WatchedKind.TENANTS, "a/b"),
        (WatchedKind.NAMESPACES, "a"),
        (WatchedKind.TOPICS, "a/b"),
        (WatchedKind.ASSIGNMENTS, ""),
    ],
)
def test_a_name_of_wrong_form_is_refused(kind, name):
    with pytest.raises(InvalidName):
        parse_scope(kind, "", ["t" if kind is WatchedKind.TENANTS else "t/n", name])


def test_a_watch_has_a_prefix_or_names():
    with pytest.raises(InvalidName, match="not both"):
        parse_scope(WatchedKind.TENANTS, "a", ["b"])


def test_names_are_bounded():
    names = [f"t{number}" for number in range(WATCH_NAMES_MAX)]
    assert len(parse_scope(WatchedKind.TENANTS, "", names).names) == WATCH_NAMES_MAX
    with pytest.raises(InvalidName, match=str(WATCH_NAMES_MAX)):
        parse_scope(WatchedKind.TENANTS, "", [*names, "one-more"])


def test_a_prefix_concerns_every_shard_and_a_namespace_the_shard_of_its_slot():
    everywhere = parse_scope(WatchedKind.TOPICS, "persistent://t/n/", ()).shares(TABLE, DIGESTS)
    named = parse_scope(WatchedKind.NAMESPACES, "", ["t/n"]).shares(TABLE, DIGESTS)

    assert sorted(everywhere) == [1, 2, 3]
    assert {shard_id: share.names for shard_id, share in named.items()} == {
        TABLE.shard_for_key("t/n"): ("t/n",)
    }


@pytest.mark.parametrize("kind", [WatchedKind.TOPICS, WatchedKind.ASSIGNMENTS])
def test_a_topic_may_be_in_any_shard_whatever_its_name(kind):
    scope = parse_scope(kind, "", ["t/n/x", "t/n/y"])
    named = scope.shares(TABLE, DIGESTS)
    fewer = initial_table([1, 2])

    assert {shard_id: share.names for shard_id, share in named.items()} == dict.fromkeys(
        [1, 2, 3], ("persistent://t/n/x", "persistent://t/n/y")
    )
    assert scope.shares(fewer, slots_digests(fewer, [1, 2, 3])) != named
    assert scope.selects("persistent://t/n/x")
    assert not scope.selects("persistent://t/n/x-1")


def test_a_share_is_another_one_when_the_shard_has_other_slots():
    scope = parse_scope(WatchedKind.TOPICS, "", ())
    before = scope.shares(TABLE, DIGESTS)
    same = scope.shares(TABLE, slots_digests(TABLE, [1, 2, 3]))
    fewer = initial_table([1, 2])
    after = scope.shares(fewer, slots_digests(fewer, [1, 2, 3]))

    assert same == before
    assert all(after[shard_id] != before[shard_id] for shard_id in (1, 2, 3))
    assert sorted(after) == [1, 2, 3], "a shard without slots may hold names still"
