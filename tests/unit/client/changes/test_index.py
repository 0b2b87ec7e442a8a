"""The index of watches finds what a list of all watches would, whatever was added and removed."""

from collections import Counter
from random import Random

from nextgen.client.changes.index import Change, ChangeIndex
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TOPIC, Kind

Index = ChangeIndex[str, int]


def found(index: Index, change: Change) -> Counter[tuple[str, int]]:
    """Return the watches that match, each with how often it was found."""
    return Counter(
        (owner, watch)
        for bucket in index.find(change)
        for owner, watches in bucket.items()
        for watch in watches
    )


def test_the_names_of_one_watch_share_what_is_kept_of_it():
    index = Index()
    names = [f"t{number}" for number in range(1_000)]

    index.add("manager", 1, (KIND_TOPIC,), names=names)

    assert len({id(bucket) for name in names for bucket in index.find((KIND_TOPIC, name))}) == 1
    index.discard("manager", 1, (KIND_TOPIC,), names=names)
    assert not index


def test_another_watch_of_a_name_changes_nothing_for_the_other_names():
    index = Index()
    index.add("a", 1, (KIND_TOPIC, KIND_NAMESPACE), names=("x", "y"))
    index.add("b", 2, (KIND_TOPIC,), names=("x",))
    index.add("a", 3, (KIND_TOPIC,), names=("x",))

    assert found(index, (KIND_TOPIC, "x")) == Counter([("a", 1), ("b", 2), ("a", 3)])
    assert found(index, (KIND_TOPIC, "y")) == Counter([("a", 1)])
    assert found(index, (KIND_NAMESPACE, "x")) == Counter([("a", 1)])
    assert [*index.find_of("a", [(KIND_TOPIC, "x")])] == [1, 3]

    index.discard("a", 1, (KIND_TOPIC, KIND_NAMESPACE), names=("x", "y"))

    assert found(index, (KIND_TOPIC, "x")) == Counter([("b", 2), ("a", 3)])
    assert found(index, (KIND_TOPIC, "y")) == Counter()


def test_what_was_not_added_is_not_removed():
    index = Index()
    index.add("a", 1, (KIND_TOPIC,), names=("x",))

    index.discard("a", 2, (KIND_TOPIC,), names=("x",))
    index.discard("b", 1, (KIND_TOPIC,), names=("x", "y"))
    index.discard("a", 1, (KIND_TOPIC,), prefix="x")

    assert found(index, (KIND_TOPIC, "x")) == Counter([("a", 1)])


NAMES = ("a", "ab", "abc", "b")
KINDS = (KIND_TOPIC, KIND_NAMESPACE)


class Listed:
    """The watches in a list."""

    def __init__(self) -> None:
        self.watches: dict[tuple[str, int], tuple[tuple[Kind, ...], str, tuple[str, ...]]] = {}

    def found(self, change: Change) -> Counter[tuple[str, int]]:
        kind, name = change
        return Counter(
            each
            for each, (kinds, prefix, names) in self.watches.items()
            if kind in kinds and (name in names if names else name.startswith(prefix))
        )


def test_the_index_finds_what_a_list_of_all_watches_would():
    for seed in range(200):
        chance, index, listed = Random(seed), Index(), Listed()
        for watch in range(1, 40):
            if listed.watches and chance.random() < 0.4:
                (owner, ended), (kinds, prefix, names) = chance.choice([*listed.watches.items()])
                index.discard(owner, ended, kinds, prefix=prefix, names=names)
                del listed.watches[owner, ended]
            else:
                owner = chance.choice("xyz")
                kinds = tuple(chance.sample(KINDS, chance.randint(1, 2)))
                names = tuple(chance.sample(NAMES, chance.randint(0, 4)))
                prefix = "" if names else chance.choice(("", *NAMES))
                index.add(owner, watch, kinds, prefix=prefix, names=names)
                listed.watches[owner, watch] = (kinds, prefix, names)
            for change in [(kind, name) for kind in KINDS for name in (*NAMES, "c")]:
                assert found(index, change) == listed.found(change), seed
        assert bool(index) == bool(listed.watches)
