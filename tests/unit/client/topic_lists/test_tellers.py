"""Who tells a name: the shard of its slot, or the home of a topic that was renamed."""

import random

import pytest

from nextgen.client.topic_lists.tellers import Tellers

NAMES = "abcdef"
SHARDS = (1, 2, 3)


def usual(name: str) -> int:
    return ord(name) % len(SHARDS) + 1


class List:
    """Names, and who tells them."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.tellers = Tellers(usual, self.names.__contains__)

    def create(self, name: str, shard_id: int) -> None:
        self.tellers.told([name], shard_id)
        self.names.add(name)

    def delete(self, name: str, shard_id: int) -> None:
        self.names.difference_update(self.tellers.taken_away([name], shard_id))


def test_a_name_that_another_shard_gets_stays_whichever_change_comes_first():
    name, first, second = "a", usual("a"), usual("b")
    assert first != second
    for order in ("create delete", "delete create"):
        for giver, taker in ((first, second), (second, first)):
            names = List()
            names.create(name, giver)
            for step in order.split():
                if step == "create":
                    names.create(name, taker)
                else:
                    names.delete(name, giver)
            assert names.names == {name}, (order, giver)
            assert names.tellers.is_told_by(name, taker)
            names.delete(name, taker)
            assert not names.names
            assert not len(names.tellers)


@pytest.mark.parametrize("seed", range(50))
def test_a_list_has_what_any_shard_tells_in_whatever_order_shards_are_followed(seed):
    chance = random.Random(seed)
    names = List()
    told: dict[int, set[str]] = {shard_id: set() for shard_id in SHARDS}
    for _ in range(200):
        shard_id = chance.choice(SHARDS)
        name = chance.choice(NAMES)
        if name in told[shard_id]:
            told[shard_id].discard(name)
            names.delete(name, shard_id)
        elif chance.random() < 0.1:
            reread(names, told, shard_id, chance)
        else:
            told[shard_id].add(name)
            names.create(name, shard_id)
        assert names.names == set.union(*told.values())
        renamed = {each for shard, all_ in told.items() for each in all_ if usual(each) != shard}
        assert len(names.tellers) == len(renamed), "others take no memory"


def reread(names: List, told: dict[int, set[str]], shard_id: int, chance: random.Random) -> None:
    """Read a shard anew, as behind missed changes: it tells other names than before."""
    fresh = set(chance.sample(NAMES, chance.randint(0, len(NAMES))))
    gone = [name for name in names.names - fresh if names.tellers.is_told_by(name, shard_id)]
    elsewhere = names.tellers.elsewhere(fresh, shard_id)
    names.tellers.told_again(fresh.__contains__, elsewhere, shard_id)
    names.tellers.told(fresh - names.names, shard_id)
    names.names.difference_update(names.tellers.taken_away(gone, shard_id))
    names.names.update(fresh)
    told[shard_id] = fresh
