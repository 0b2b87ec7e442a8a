"""The cache against a model: whatever happens in whatever order, nothing stale is given."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.domain.answer_cache import AnswerCache, AnswerFacts, Delta, HasLeft

SHARD = 1
TOPIC = "persistent://t/n/x"


def encode(facts: AnswerFacts) -> bytes:
    return repr(facts).encode()


def decode(encoded: bytes) -> AnswerFacts:
    return eval(encoded)  # Made by encode, above.


def made(answers_max: int = 100, aliases_max: int = 100, deltas_max: int = 100) -> AnswerCache:
    return AnswerCache(
        decode, answers_max=answers_max, aliases_max=aliases_max, deltas_max=deltas_max
    )


def facts(
    position: int, epoch: int = 1, topic: str = TOPIC, session: str = "s-1", topic_id: str = "id"
) -> AnswerFacts:
    return AnswerFacts(topic, topic_id, epoch, f"broker-of-{session}", session, position)


def delta(
    position: int, epoch: int, topic: str = TOPIC, session: str = "s-1", topic_id: str = "id"
) -> Delta:
    return Delta(position, topic, topic_id, epoch, f"broker-of-{session}", session)


def unassigned(position: int, epoch: int) -> Delta:
    return Delta(position, TOPIC, "id", epoch, "", "")


def insert(cache: AnswerCache, answer: AnswerFacts, shard_id: int = SHARD) -> bool:
    return cache.insert(shard_id, encode(answer), answer)


def given_answer(cache: AnswerCache, name: str = TOPIC, now: float = 0.0) -> AnswerFacts | None:
    answers, missing = cache.lookup([name], now)
    return None if missing else decode(answers[0])


@pytest.fixture
def cache() -> AnswerCache:
    """Follows shard 1 from position 10 on; its answers may be given until time 100."""
    cache = made()
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    return cache


def test_an_answer_is_given_until_its_time_is_over(cache):
    insert(cache, facts(10))

    assert given_answer(cache, now=99.9) == facts(10)
    assert given_answer(cache, now=100.0) is None


def test_a_renewal_revives_what_had_run_out(cache):
    insert(cache, facts(10))
    assert given_answer(cache, now=150.0) is None

    cache.renew(SHARD, 200.0)

    assert given_answer(cache, now=150.0) == facts(10)


def test_answers_come_in_the_order_of_the_names_with_the_places_that_are_open(cache):
    insert(cache, facts(10, topic="b"))

    answers, missing = cache.lookup(["a", "b", "a"], 0.0)

    assert missing == [0, 2]
    assert decode(answers[1]).topic == "b"


def test_nothing_is_taken_in_for_a_shard_that_is_not_followed(cache):
    assert not insert(cache, facts(50), shard_id=2)
    assert cache.position(2) == 0


def test_an_answer_from_before_the_stream_began_is_not_taken_in(cache):
    assert not insert(cache, facts(9))
    assert insert(cache, facts(10))


def routed_facts(url: str, session: str = "s-1") -> AnswerFacts:
    return AnswerFacts(TOPIC, "id", 1, f"broker-of-{session}", session, 10, url)


def test_a_route_is_made_once_for_a_session_and_given_as_long_as_its_answers():
    urls: list[str] = []

    def route_of(url: str) -> tuple[bytes, ...]:
        urls.append(url)
        return (url.encode(),)

    cache = AnswerCache(decode, answers_max=100, aliases_max=10, deltas_max=10, route_of=route_of)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    for name in ("a", "b", TOPIC):
        answer = AnswerFacts(name, "id", 1, "broker-1", "s-1", 10, "pulsar://b:1")
        cache.insert(SHARD, encode(answer), answer)

    assert cache.route(TOPIC, 99.9) == (b"pulsar://b:1",)
    assert cache.has_answer(TOPIC, 99.9)
    assert urls == ["pulsar://b:1"]
    assert cache.route(TOPIC, 100.0) == ()
    assert not cache.has_answer(TOPIC, 100.0)
    cache.renew(SHARD, 200.0)
    assert cache.route(TOPIC, 150.0) == (b"pulsar://b:1",)
    cache.end_sessions(lambda broker, session: session == "s-1")
    assert cache.route(TOPIC, 150.0) == ()


def test_there_is_no_route_to_a_broker_without_a_url(cache):
    insert(cache, routed_facts(""))

    assert cache.route(TOPIC, 0.0) == ()
    assert cache.has_answer(TOPIC, 0.0)


def test_a_session_has_a_route_as_soon_as_one_of_its_answers_has_a_url():
    cache = AnswerCache(
        decode,
        answers_max=100,
        aliases_max=10,
        deltas_max=10,
        route_of=lambda url: (url.encode(),),
    )
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    early = AnswerFacts("early", "id", 1, "broker-1", "s-1", 10)
    insert(cache, early)
    assert cache.route("early", 0.0) == ()

    insert(cache, routed_facts("pulsar://b:1"))

    assert cache.route(TOPIC, 0.0) == (b"pulsar://b:1",)
    assert cache.route("early", 0.0) == (b"pulsar://b:1",)


def test_a_route_is_found_by_another_spelling_and_in_either_generation():
    cache = AnswerCache(
        decode, answers_max=4, aliases_max=10, deltas_max=10, route_of=lambda url: (url.encode(),)
    )
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    cache.add_alias("x", TOPIC)
    insert(cache, routed_facts("pulsar://b:1"))
    for name in ("a", "b"):
        insert(cache, facts(10, topic=name))

    assert cache.route("x", 0.0) == (b"pulsar://b:1",)
    assert cache.route("unknown", 0.0) == ()


def test_a_delta_removes_an_older_answer(cache):
    insert(cache, facts(10))

    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert given_answer(cache) is None


def test_a_late_answer_that_a_delta_outdated_is_not_taken_in(cache):
    """1. A shard answers at 10. 2. The topic moves at 12. 3. The delta overtakes the answer."""
    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert cache.is_outdated(SHARD, facts(10, epoch=1))
    assert not insert(cache, facts(10, epoch=1))
    assert not cache.is_outdated(SHARD, facts(12, epoch=2))
    assert insert(cache, facts(12, epoch=2))


def test_of_a_shard_that_is_not_followed_nothing_is_known_to_be_outdated(cache):
    assert not cache.is_outdated(2, facts(10))


def test_an_answer_that_is_ahead_of_its_own_delta_stays(cache):
    insert(cache, facts(12, epoch=2))

    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert given_answer(cache) == facts(12, epoch=2)


def test_an_answer_that_is_ahead_is_not_removed_by_history(cache):
    insert(cache, facts(20, epoch=3))

    cache.apply(SHARD, 15, [delta(12, epoch=2)])

    assert given_answer(cache) == facts(20, epoch=3)


def test_a_deletion_removes_the_answer_of_the_epoch_that_ended(cache):
    insert(cache, facts(10, epoch=4))

    cache.apply(SHARD, 11, [unassigned(11, epoch=4)])

    assert given_answer(cache) is None
    assert not insert(cache, facts(10, epoch=4))


def test_a_topic_created_again_begins_with_epoch_one_and_another_id(cache):
    insert(cache, facts(10, epoch=7, topic_id="old"))

    cache.apply(SHARD, 14, [delta(14, epoch=1, topic_id="new")])

    assert given_answer(cache) is None
    assert insert(cache, facts(14, epoch=1, topic_id="new"))


def test_recent_deltas_max_judge_late_answers_and_what_one_more_drops_is_unsafe():
    cache = made(deltas_max=2)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    cache.apply(SHARD, 13, [delta(n, 1, topic=f"t{n}") for n in (11, 12, 13)])

    assert not insert(cache, facts(10))
    assert insert(cache, facts(11))
    at_limit = made(deltas_max=3)
    at_limit.reset(SHARD, 10)
    at_limit.renew(SHARD, 100.0)
    at_limit.apply(SHARD, 13, [delta(n, 1, topic=f"t{n}") for n in (11, 12, 13)])
    assert insert(at_limit, facts(10))


def test_a_topic_that_changes_again_is_remembered_by_its_latest_change():
    cache = made(deltas_max=2)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    changes = [("a", 11, 1), ("b", 12, 1), ("a", 13, 2), ("c", 14, 1)]

    cache.apply(SHARD, 14, [delta(at, epoch, topic=name) for name, at, epoch in changes])

    assert insert(cache, facts(12, topic="d")), "the change at 12 is the only one forgotten"
    assert not insert(cache, facts(12, epoch=1, topic="a"))


def test_what_was_delivered_before_does_not_take_the_position_back(cache):
    cache.apply(SHARD, 14, [])

    cache.apply(SHARD, 12, [])

    assert cache.position(SHARD) == 14


def test_an_answer_is_kept_once_though_an_older_one_was_not_used_lately():
    cache = made(answers_max=4)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    for name in ("a", TOPIC, "b"):
        insert(cache, facts(10, topic=name))

    insert(cache, facts(12, epoch=2))

    assert len(cache) == 3
    assert given_answer(cache) == facts(12, epoch=2)


def test_a_reset_forgets_the_shard_and_no_other(cache):
    cache.reset(2, 5)
    cache.renew(2, 100.0)
    insert(cache, facts(10, topic="a"))
    insert(cache, facts(5, topic="b"), shard_id=2)

    cache.reset(SHARD, 30)
    cache.renew(SHARD, 200.0)

    assert given_answer(cache, "a") is None
    assert given_answer(cache, "b") is not None
    assert cache.position(SHARD) == 30


def test_a_session_that_ended_takes_its_answers_along_and_renewal_does_not_revive_them(cache):
    insert(cache, facts(10, topic="a", session="s-1"))
    insert(cache, facts(10, topic="b", session="s-2"))

    ended = cache.end_sessions(lambda broker_id, session_id: session_id == "s-1")
    cache.renew(SHARD, 200.0)

    assert ended == 1
    assert given_answer(cache, "a") is None
    assert given_answer(cache, "b") is not None


def test_an_alias_leads_to_the_answer_and_dies_with_it(cache):
    insert(cache, facts(10))
    cache.add_alias("t/n/x", TOPIC)
    assert given_answer(cache, "t/n/x") == facts(10)

    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert given_answer(cache, "t/n/x") is None


def test_discovery_cache_aliases_max_are_kept_and_one_more_begins_anew(cache):
    cache = made(aliases_max=3)
    for number in range(10):
        cache.add_alias(f"a{number}", TOPIC)

        assert len(cache._aliases) == number % 3 + 1


@pytest.mark.parametrize("answers_max", [1, 2, 10, 100])
def test_discovery_cache_answers_max_are_kept_and_one_more_drops_the_oldest(answers_max):
    cache = made(answers_max=answers_max)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    for number in range(3 * answers_max):
        insert(cache, facts(10, topic=f"t{number}"))
        assert len(cache) == min(number + 1, answers_max)
        assert number < answers_max or given_answer(cache, f"t{number - answers_max}") is None

    assert given_answer(cache, f"t{3 * answers_max - 1}") is not None


def test_what_is_used_outlives_what_is_not():
    cache = made(answers_max=20)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    insert(cache, facts(10, topic="used"))
    for number in range(200):
        insert(cache, facts(10, topic=f"t{number}"))
        assert given_answer(cache, "used") is not None

    assert given_answer(cache, "t0") is None


def test_a_delta_removes_an_answer_that_was_not_used_lately():
    cache = made(answers_max=2)
    cache.reset(SHARD, 10)
    cache.renew(SHARD, 100.0)
    for name in ("a", TOPIC, "b"):
        insert(cache, facts(10, topic=name))
    assert len(cache) == 2

    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert len(cache) == 1
    assert given_answer(cache) is None
    assert given_answer(cache, "b") is not None


def left(*topics: str) -> HasLeft:
    return lambda facts: facts.topic in topics


@pytest.mark.parametrize("finds", [0, 1, 50], ids=["not found yet", "found", "at hand"])
def test_a_release_ends_answers_about_what_left_and_no_other(cache, finds):
    cache.add_alias("A", "a")
    for topic in ("a", "b"):
        insert(cache, facts(10, topic=topic))
    for _ in range(finds):
        cache.lookup(["a", "b"], 0.0)

    cache.release(SHARD, 20, left("a"))

    assert given_answer(cache, "a") is None
    assert given_answer(cache, "A") is None
    assert cache.route("a", 0.0) == ()
    assert given_answer(cache, "b") == facts(10, topic="b")
    assert len(cache) == 1


def test_a_release_takes_in_no_answer_from_before_it(cache):
    cache.release(SHARD, 20, left("a"))

    assert cache.is_outdated(SHARD, facts(19, topic="a"))
    assert not insert(cache, facts(19, topic="a"))
    assert insert(cache, facts(20, topic="a"))
    assert given_answer(cache, "a") == facts(20, topic="a"), "it came back"


def test_what_stays_over_several_releases_is_judged_by_each_of_them(cache):
    for topic in ("a", "b", "c"):
        insert(cache, facts(10, topic=topic))
    for position, topic in ((20, "a"), (30, "b"), (40, "d")):
        cache.release(SHARD, position, left(topic))

    assert [given_answer(cache, topic) is not None for topic in "abc"] == [False, False, True]


def test_what_stays_is_renewed_and_ends_with_its_session_though_it_was_not_judged(cache):
    insert(cache, facts(10, topic="a"))
    insert(cache, facts(10, topic="b", session="s-2"))
    cache.release(SHARD, 20, left())
    cache.renew(SHARD, 200.0)
    assert given_answer(cache, "a", now=150.0) == facts(10, topic="a")

    cache.end_sessions(lambda _broker_id, session_id: session_id == "s-2")

    assert given_answer(cache, "b", now=150.0) is None
    assert given_answer(cache, "a", now=200.0) is None


def test_a_reset_ends_what_no_release_has_judged_yet(cache):
    insert(cache, facts(10, topic="a"))
    cache.release(SHARD, 20, left())

    cache.reset(SHARD, 30)
    cache.renew(SHARD, 200.0)

    assert given_answer(cache, "a") is None


def test_a_change_outdates_what_stays(cache):
    insert(cache, facts(10))
    cache.release(SHARD, 11, left())

    cache.apply(SHARD, 12, [delta(12, epoch=2)])

    assert given_answer(cache) is None


def test_a_release_touches_no_other_shard(cache):
    cache.reset(2, 5)
    cache.renew(2, 100.0)
    insert(cache, facts(5, topic="a"), shard_id=2)

    cache.release(SHARD, 20, left("a"))

    assert given_answer(cache, "a") is not None


TOPICS = ["a", "b"]


class CacheModel:
    """One shard whose log is known in full, and a cache that hears of it late and in part.

    Answers in flight may arrive at any time. The cache must never give one that did not hold
    at the position it had delivered, or later; nor one of a session known as ended; nor one
    after its time.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.cache = made(answers_max=4, aliases_max=2, deltas_max=1)
        self.log: list[Delta | None] = [None] * chance.randrange(3)
        self.in_flight: list[AnswerFacts] = []
        self.ended: set[str] = set()
        self.sessions = ["s-1", "s-2"]
        self.sessions_begun = 2
        self.incarnation = 0
        self.now = 0.0
        self.until = 0.0
        self.given = 0
        self.releases: dict[int, str] = {}
        """By position the topic that left. It comes back at once."""
        self.cache.reset(SHARD, len(self.log))
        self.renew()

    def truth(self, topic: str, position: int) -> Delta | None:
        """Return the last change of the topic's assignment up to ``position``."""
        changes = [d for d in self.log[:position] if d is not None and d.topic == topic]
        return changes[-1] if changes else None

    def assign(self) -> None:
        topic = self.chance.choice(TOPICS)
        before = self.truth(topic, len(self.log))
        is_fresh = before is None or not before.broker_id
        self.incarnation += is_fresh
        topic_id = f"id-{self.incarnation}" if is_fresh else before.topic_id
        epoch = 1 if is_fresh else before.epoch + 1
        session = self.chance.choice(self.sessions)
        self.log.append(delta(len(self.log) + 1, epoch, topic, session, topic_id))

    def delete(self) -> None:
        topic = self.chance.choice(TOPICS)
        before = self.truth(topic, len(self.log))
        if before is not None and before.broker_id:
            position = len(self.log) + 1
            self.log.append(Delta(position, topic, before.topic_id, before.epoch, "", ""))

    def unrelated_event(self) -> None:
        self.log.append(None)

    def release(self) -> None:
        self.log.append(None)
        self.releases[len(self.log)] = self.chance.choice(TOPICS)

    def shard_answers(self) -> None:
        topic = self.chance.choice(TOPICS)
        position = len(self.log)
        known = self.truth(topic, position)
        if known is not None and known.broker_id:
            session, broker = known.session_id, known.broker_id
            answer = AnswerFacts(topic, known.topic_id, known.epoch, broker, session, position)
            self.in_flight.append(answer)

    def answer_arrives(self) -> None:
        if not self.in_flight:
            return
        answer = self.in_flight.pop(self.chance.randrange(len(self.in_flight)))
        if answer.session_id not in self.ended:
            insert(self.cache, answer)

    def update_arrives(self) -> None:
        start = self.cache.position(SHARD)
        end = self.chance.randint(start, len(self.log))
        for position in range(start + 1, end + 1):
            if position in self.releases:
                self.cache.release(SHARD, position, left(self.releases[position]))
        self.cache.apply(SHARD, end, [d for d in self.log[start:end] if d is not None])
        self.renew()

    def renew(self) -> None:
        self.until = self.now + 10
        self.cache.renew(SHARD, self.until)

    def gap_cannot_be_filled(self) -> None:
        self.cache.reset(SHARD, len(self.log))
        self.until = float("-inf")

    def session_ends(self) -> None:
        turn = self.chance.randrange(2)
        self.ended.add(self.sessions[turn])
        self.sessions_begun += 1
        self.sessions[turn] = f"s-{self.sessions_begun}"
        self.cache.end_sessions(lambda _broker_id, session_id: session_id in self.ended)

    def time_passes(self) -> None:
        self.now += self.chance.choice([1, 2, 3, 12])

    def other_spelling(self) -> None:
        topic = self.chance.choice(TOPICS)
        self.cache.add_alias(topic.upper(), topic)

    def step(self) -> None:
        often = [self.assign, self.shard_answers, self.answer_arrives, self.update_arrives]
        sometimes = [self.delete, self.release, self.unrelated_event, self.renew, self.time_passes]
        rarely = [self.gap_cannot_be_filled, self.session_ends, self.other_spelling]
        self.chance.choice(4 * often + 2 * sometimes + rarely)()

    def check(self) -> None:
        assert len(self.cache) <= 4
        delivered = self.cache.position(SHARD)
        for name in (*TOPICS, *map(str.upper, TOPICS)):
            answer = given_answer(self.cache, name, self.now)
            if answer is None:
                continue
            self.given += 1
            assert answer.topic == name.lower()
            assert self.now < self.until
            assert answer.session_id not in self.ended
            for position, topic in self.releases.items():
                assert topic != answer.topic or not answer.position < position <= delivered
            held = (self.truth(answer.topic, at) for at in range(delivered, len(self.log) + 1))
            assert any(
                change is not None
                and change.broker_id
                and (change.topic_id, change.epoch, change.session_id)
                == (answer.topic_id, answer.epoch, answer.session_id)
                for change in held
            ), f"{answer} did not hold at {delivered} or later"


def test_whatever_happens_in_whatever_order_nothing_stale_is_given():
    given_in_all = 0
    for seed in range(1_500):
        model = CacheModel(Random(seed))
        try:
            for _ in range(40):
                model.step()
                model.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        given_in_all += model.given

    assert given_in_all > 10_000, "a cache that gives nothing proves nothing"


@given(positions=st.lists(st.integers(1, 50), min_size=1, unique=True).map(sorted))
def test_applying_updates_one_by_one_or_at_once_gives_the_same(positions):
    deltas = [delta(p, epoch=n + 2, topic=f"t{p % 3}") for n, p in enumerate(positions)]
    one, other = made(), made()
    for cache in (one, other):
        cache.reset(SHARD, 0)
        cache.renew(SHARD, 100.0)
        for topic in ("t0", "t1", "t2"):
            insert(cache, facts(0, topic=topic))

    one.apply(SHARD, 50, deltas)
    for change in deltas:
        other.apply(SHARD, change.position, [change])

    for topic in ("t0", "t1", "t2"):
        assert given_answer(one, topic) == given_answer(other, topic)
