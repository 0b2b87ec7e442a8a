"""The store of answers: whatever is cut and shared, each answer comes back as it was put."""

import gc
import zlib
from random import Random

import pytest

from discovery.domain.answer_store import (
    FINDS_PER_ENTRY_AT_HAND,
    SECOND_CHANCES_MAX,
    VICTIMS_PER_SCAN,
    AnswerStore,
)
from discovery.wire import encoded_answer
from protos.nextgen.v1.inventory_pb2 import LookupAnswer

Store = AnswerStore[str]


def made(answers_max: int = 100, at_hand_max: int = 10, shared_max: int = 10) -> Store:
    return AnswerStore(answers_max=answers_max, at_hand_max=at_hand_max, shared_max=shared_max)


def message(name: str = "x", *, broker: int = 1, epoch: int = 1, url: str = "") -> LookupAnswer:
    return LookupAnswer(
        topic=f"persistent://t/n/{name}",
        broker_id=f"broker-{broker}",
        broker_url=url or f"pulsar://10.0.0.{broker}:6650",
        broker_grpc=f"10.0.0.{broker}:7650",
        epoch=epoch,
        session_id=f"{broker:024x}",
        topic_id=f"{zlib.crc32(name.encode()):024x}",
        shard_id=3,
        position=77,
    )


def put(store: Store, answer: LookupAnswer, permit: str = "permit") -> bytes:
    encoded = encoded_answer(answer)
    store.put(answer.topic, encoded, permit, topic_id=answer.topic_id)
    return encoded


def taken(store: Store, topic: str) -> tuple[bytes, str] | None:
    """Read as the cache does."""
    return store.at_hand.get(topic) or store.find(topic)


def test_an_answer_comes_back_byte_for_byte_with_its_permit():
    store = made()
    one, other = message("one"), message("other", broker=2)
    encoded = {answer.topic: put(store, answer, answer.broker_id) for answer in (one, other)}

    assert store.find(one.topic) == (encoded[one.topic], "broker-1")
    assert store.find(other.topic) == (encoded[other.topic], "broker-2")
    assert store.peek(one.topic) == encoded[one.topic]
    assert store.find("persistent://t/n/third") is None
    assert store.peek("persistent://t/n/third") is None


@pytest.mark.parametrize("name", ["ÿþ-Ā", "名前", "a" * 900, "%FF"])
def test_any_name_comes_back(name):
    store = made()

    encoded = put(store, message(name))

    assert store.find(message(name).topic) == (encoded, "permit")


def test_any_length_comes_back_also_one_whose_encoding_has_the_mark():
    store = made(answers_max=2_000, shared_max=2_000)
    answers = [message("n" * length, epoch=length) for length in range(1, 600)]
    encoded = [put(store, answer) for answer in answers]
    assert any(b"\xff" in each[:4] for each in encoded), "no length has the mark in it"

    for answer, expected in zip(answers, encoded, strict=True):
        assert store.find(answer.topic) == (expected, "permit")


def test_an_answer_without_name_or_id_in_it_comes_back():
    store = made()
    store.put("a", b"\x01\xff\x02", "permit", topic_id="id")
    store.put("b", b"", "permit", topic_id="")
    store.put("idle", b"id..idle..\xff", "permit", topic_id="id")

    assert store.find("a") == (b"\x01\xff\x02", "permit")
    assert store.find("b") == (b"", "permit")
    assert store.find("idle") == (b"id..idle..\xff", "permit")


def test_answers_of_one_session_and_epoch_share_all_but_their_topic():
    store = made(answers_max=1_000)
    long_url = "pulsar://" + "h" * 200 + ":6650"
    for number in range(100):
        put(store, message(f"t{number}", url=long_url))

    assert store.shared_count == 1
    assert all(len(packed) < 120 for packed in store._young.values())


def test_permits_share_nothing():
    store = made()
    one, other = message("one"), message("other")
    put(store, one, "of shard 1")
    put(store, other, "of shard 2")

    assert store.shared_count == 2
    assert [store.find(each.topic)[1] for each in (one, other)] == ["of shard 1", "of shard 2"]


def test_discovery_cache_shared_max_are_shared_and_one_more_is_stored_whole():
    store = made(shared_max=3)
    answers = [message(f"t{epoch}", epoch=epoch) for epoch in range(1, 6)]
    encoded = [put(store, answer) for answer in answers]

    assert store.shared_count == 3 + 1, "all answers of a permit that are stored whole share b''"
    for answer, expected in zip(answers, encoded, strict=True):
        assert store.find(answer.topic) == (expected, "permit")
    known = message("again", epoch=2)
    assert store.find(known.topic) is None
    put(store, known)
    assert store.shared_count == 4


def test_what_nobody_refers_to_is_freed_and_its_tag_given_again():
    store = made(answers_max=1_000)
    for epoch in range(1, 500):
        put(store, message("x", epoch=epoch))
        assert store.shared_count == 1
        assert len(store) == 1

    store.remove(message("x").topic)

    assert (len(store), store.shared_count) == (0, 0)
    assert len(store._free_tags) <= 2


def names_of(store: Store) -> set[str]:
    return {topic.rpartition("/")[2] for topic in (*store._young, *store._old)}


def test_the_first_that_was_put_goes_first_unless_it_was_found_since():
    store = made(answers_max=4)
    for name in "abcd":
        put(store, message(name))

    put(store, message("e"))
    assert names_of(store) == set("bcde")
    assert store.find(message("b").topic) is not None
    assert store.peek(message("c").topic) is not None
    put(store, message("f"))
    assert names_of(store) == set("bdef")
    put(store, message("g"))
    assert names_of(store) == set("befg")
    put(store, message("h"))

    assert names_of(store) == set("bfgh"), "the next round begins with the one put first"
    assert store.shared_count == 1


def test_all_that_fit_stay_however_they_are_found_and_put_again():
    store = made(answers_max=10)
    for _ in range(5):
        for name in "abcdefghij":
            put(store, message(name))
            assert store.find(message("a").topic) is not None

    assert names_of(store) == set("abcdefghij")


def test_what_is_dropped_is_counted_over_the_scans_of_the_old_generation():
    store = made(answers_max=2 * VICTIMS_PER_SCAN + 10)
    count = 5 * VICTIMS_PER_SCAN
    for number in range(count):
        put(store, message(f"t{number}"))

    assert len(store) == 2 * VICTIMS_PER_SCAN + 10
    assert names_of(store) == {f"t{number}" for number in range(count - len(store), count)}


def test_an_eviction_spares_so_many_that_are_at_hand_and_no_more():
    count = SECOND_CHANCES_MAX + 5
    store = made(answers_max=count, at_hand_max=count)
    for number in range(count):
        put(store, message(f"t{number}"))
    for number in range(count):
        at_hand(store, message(f"t{number}").topic)

    put(store, message("one more"))

    assert len(store) == count
    assert store.peek(message(f"t{SECOND_CHANCES_MAX}").topic) is None
    assert message("t0").topic not in store.at_hand, "it has had its chance"


def test_an_answer_that_is_found_again_and_again_comes_to_be_at_hand():
    store = made()
    encoded = put(store, message())
    topic = message().topic

    for _ in range(FINDS_PER_ENTRY_AT_HAND - 1):
        store.find(topic)
    assert topic not in store.at_hand
    store.find(topic)

    assert store.at_hand == {topic: (encoded, "permit")}


def test_a_permit_is_found_as_its_answer_is():
    store = made(answers_max=3)
    encoded = [put(store, message(name), f"of {name}") for name in "abc"]

    assert store.find_permit(message("a").topic) == "of a"
    assert store.find_permit(message("d").topic) is None
    put(store, message("d"))
    put(store, message("e"))
    assert store.find_permit(message("c").topic) == "of c"
    put(store, message("f"))

    assert names_of(store) == set("cef"), "what was found is used"
    while message("c").topic not in store.at_hand:
        store.find_permit(message("c").topic)
    assert store.at_hand == {message("c").topic: (encoded[2], "of c")}


def at_hand(store: Store, topic: str) -> None:
    while topic not in store.at_hand:
        assert store.find(topic) is not None


def test_discovery_cache_at_hand_max_are_at_hand_and_one_more_begins_anew():
    store = made(at_hand_max=3)
    topics = [message(f"t{number}").topic for number in range(4)]
    for number in range(4):
        put(store, message(f"t{number}"))

    for topic in topics[:3]:
        at_hand(store, topic)
    assert [*store.at_hand] == topics[:3]
    at_hand(store, topics[3])

    assert [*store.at_hand] == topics[3:]


def test_a_later_answer_and_a_removal_take_the_one_at_hand_along():
    store = made()
    put(store, message())
    topic = message().topic
    at_hand(store, topic)

    later = put(store, message(epoch=2))

    assert taken(store, topic) == (later, "permit")
    at_hand(store, topic)
    store.remove(topic)
    assert taken(store, topic) is None


def test_what_is_read_at_hand_alone_outlives_what_is_not_used():
    store = made(answers_max=20)
    put(store, message("used"))
    topic = message("used").topic
    at_hand(store, topic)

    for number in range(200):
        put(store, message(f"t{number}"))
        assert taken(store, topic) is not None
        if topic not in store.at_hand and number % 3 == 0:
            at_hand(store, topic)

    assert store.find(message("t0").topic) is None


def test_answers_are_nothing_that_the_garbage_collector_visits():
    store = made(answers_max=10_000)
    put(store, message("first"))
    gc.collect()
    before = len(gc.get_objects())

    for number in range(4_000):
        put(store, message(f"t{number}"))

    gc.collect()
    assert len(gc.get_objects()) - before < 100


class StoreModel:
    """The store beside a map without limits: what it gives is the map's, and it forgets only what
    two generations allow."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.store = made(answers_max=6, at_hand_max=2, shared_max=3)
        self.all: dict[str, tuple[bytes, str]] = {}
        self.given = 0

    def answer(self) -> LookupAnswer:
        chance = self.chance
        name = "abcdefghij"[chance.randrange(10)] * chance.choice((1, 1, 1, 61, 189))
        return message(name, broker=chance.randrange(3), epoch=chance.randrange(4))

    def step(self) -> None:
        answer = self.answer()
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                permit = f"permit-{self.chance.randrange(2)}"
                encoded = put(self.store, answer, permit)
                self.all[answer.topic] = (encoded, permit)
                assert taken(self.store, answer.topic) == (encoded, permit)
            case 3:
                self.store.remove(answer.topic)
                self.all.pop(answer.topic, None)
            case 4:
                peeked = self.store.peek(answer.topic)
                assert peeked is None or peeked == self.all[answer.topic][0]
            case _:
                found = taken(self.store, answer.topic)
                self.given += found is not None
                assert found is None or found == self.all.get(answer.topic)

    def check(self) -> None:
        store = self.store
        assert len(store) <= 6
        assert len(store.at_hand) <= 2
        assert store.at_hand.keys() <= {*store._young, *store._old}
        stored = [*store._young.values(), *store._old.values()]
        assert sum(shared.uses for shared in store._shared.values()) == len(stored)
        assert {packed[:3] for packed in stored} == store._shared.keys()
        assert store._shared.keys().isdisjoint(store._free_tags)


def test_whatever_is_put_found_and_removed_nothing_is_mixed_up():
    given = 0
    for seed in range(300):
        model = StoreModel(Random(seed))
        try:
            for _ in range(80):
                model.step()
                model.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        given += model.given
    assert given > 1_500, "a store that gives nothing proves nothing"
