"""Until when a name is answered as absent."""

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.discovery import (
    ABSENT_ANSWER_BYTES_MAX,
    ABSENT_NAME_MS_MAX,
    ABSENT_NAMES_MAX,
    ABSENT_SHARD_IDLE_MS,
)
from tests.support.discovery.absent_names import absent_names

SHARD = 1
NAME = "persistent://t/n/x"
PARTITION = f"{NAME}-partition-5"
ANSWER = b"absent"
TTL_S = ABSENT_NAME_MS_MAX / 1_000
IDLE_S = ABSENT_SHARD_IDLE_MS / 1_000


def followed(**limits):
    """Return a memory that follows the shard's creations from position 10 on, leased for long."""
    names = absent_names(**limits)
    names.created(SHARD, (), position=10)
    names.renew(SHARD, 1_000.0)
    return names


def put(names, name=NAME, *, base=NAME, position=10, now=0.0, answer=ANSWER):
    return names.put(SHARD, name, base, answer, position=position, now=now)


def find_until(names, end, name=NAME):
    """Look the name up once a second before ``end``, so that its shard stays in use."""
    for second in range(int(end)):
        assert names.find(name, float(second)) == ANSWER


def test_an_absence_is_given_until_its_time_is_over():
    names = followed()
    assert put(names)

    find_until(names, TTL_S)
    assert names.find(NAME, TTL_S - 0.001) == ANSWER
    assert names.find(NAME, TTL_S) is None
    assert names.find("persistent://t/n/y", 0.0) is None


def test_a_name_of_a_shard_that_is_not_in_use_is_looked_up_there():
    """Its creations are named late, so an absence would be older than usual."""
    names = followed()
    put(names)

    assert names.find(NAME, IDLE_S - 0.001) == ANSWER
    assert names.find(NAME, 2 * IDLE_S - 0.002) == ANSWER, "the lookup is a use"
    assert names.find(NAME, 3 * IDLE_S) is None

    put(names, "persistent://t/n/y", base="persistent://t/n/y", now=3 * IDLE_S)
    assert names.find(NAME, 3 * IDLE_S) == ANSWER, "the shard is in use again"


def test_a_shard_is_in_use_from_its_first_absence_until_some_time_after_the_last_lookup():
    names = followed()
    heard: list[str] = []
    names.on_used(SHARD, lambda: heard.append("first"))
    names.on_used(2, lambda: heard.append("of another shard"))
    assert not names.is_used(SHARD, 0.0)

    put(names, now=0.0)
    put(names, name=PARTITION, now=1.0)
    names.find(NAME, 2.0)

    assert heard == ["first"], "the others change nothing"
    assert names.is_used(SHARD, 2.0 + IDLE_S - 0.001)
    assert not names.is_used(SHARD, 2.0 + IDLE_S)
    assert not names.is_used(2, 0.0)

    put(names, now=2.0 + IDLE_S)
    assert heard == ["first", "first"]


def test_a_reset_shard_is_in_use_again_with_its_next_absence():
    names = followed()
    heard: list[str] = []
    names.on_used(SHARD, lambda: heard.append("first"))
    put(names)
    names.reset(SHARD)
    assert not names.is_used(SHARD, 0.0)
    assert not put(names)

    names.created(SHARD, (), position=10)
    put(names)

    assert heard == ["first", "first"]
    assert names.is_used(SHARD, 0.0)


def test_an_absence_does_not_outlive_the_lease_of_the_watch():
    names = followed()
    put(names)
    names.renew(SHARD, 1.0)

    assert names.find(NAME, 0.999) == ANSWER
    assert names.find(NAME, 1.0) is None

    names.renew(SHARD, 1.5)
    assert names.find(NAME, 1.2) == ANSWER, "the same watch goes on, and has named no creation"


def test_nothing_is_remembered_of_a_shard_whose_creations_are_not_named():
    names = absent_names()
    names.renew(SHARD, 1_000.0)

    assert not put(names)
    assert names.find(NAME, 0.0) is None


def test_a_creation_that_the_watch_names_ends_the_absence():
    names = followed()
    put(names)

    names.created(SHARD, [NAME], position=10)

    assert names.find(NAME, 0.0) is None


def test_a_created_topic_ends_the_absence_of_its_partitions():
    names = followed()
    put(names, PARTITION)
    put(names, f"{NAME}-partition-6")

    names.created(SHARD, [NAME], position=10)

    assert names.find(PARTITION, 0.0) is None
    assert len(names) == 0


def test_a_created_scalable_topic_ends_the_absence_of_its_persistent_name():
    names = followed()
    put(names)
    put(names, PARTITION)
    put(names, "topic://t/n/x", base="topic://t/n/x")

    names.created(SHARD, ["topic://t/n/x"], position=10)

    assert len(names) == 0


def test_an_absence_older_than_the_watch_position_is_not_remembered():
    names = followed()
    names.advance(SHARD, 20)

    assert not put(names, position=19)
    assert put(names, position=20)


def test_an_absence_from_before_a_topic_was_created_here_is_not_taken_in():
    """1. The shard answers that the name is absent. 2. It is created through this process, which
    answers the creator. 3. The first answer arrives."""
    names = followed()
    names.created_here(SHARD, 12, [NAME])

    assert not put(names, position=11)

    names.reset(SHARD)
    names.created(SHARD, (), position=10)
    assert not put(names, position=11), "the watch has begun again and knows less"


def test_a_topic_that_was_created_here_is_not_absent_at_once():
    names = followed()
    put(names)

    names.created_here(SHARD, 12, [NAME])

    assert names.find(NAME, 0.0) is None


def test_an_answer_that_the_name_exists_ends_its_absence():
    names = followed()
    put(names)

    names.forget(NAME)

    assert names.find(NAME, 0.0) is None


def test_a_caller_that_knows_more_than_the_watch_is_not_answered():
    names = followed()
    put(names)

    assert names.find(NAME, 0.0, {SHARD: 10}) == ANSWER
    assert names.find(NAME, 0.0, {SHARD: 11}) is None
    assert names.find(NAME, 0.0, {SHARD + 1: 99}) == ANSWER

    names.advance(SHARD, 11)
    assert names.find(NAME, 0.0, {SHARD: 11}) == ANSWER, "the watch has named no creation up to it"


def test_a_reset_ends_every_absence_of_the_shard_for_good():
    names = followed()
    put(names)

    names.reset(SHARD)
    assert names.find(NAME, 0.0) is None

    names.created(SHARD, (), position=30)
    names.advance(SHARD, 30)
    names.renew(SHARD, 1_000.0)
    assert names.find(NAME, 0.0) is None, "creations in between were not named"


def test_an_absence_that_is_taken_in_again_lasts_from_then_on():
    names = followed()
    put(names)
    put(names, now=1.0)

    find_until(names, TTL_S)
    assert names.find(NAME, TTL_S + 0.5) == ANSWER
    assert len(names) == 1


def test_places_that_must_be_asked_for_anew_are_left_open():
    names = followed()
    put(names)
    answers, missing = [b"", b"", b"known"], [0, 1]

    names.fill([NAME, NAME, "other"], answers, missing, 0.0, known={}, asked_anew=frozenset({1}))

    assert (answers, missing) == ([ANSWER, b"", b"known"], [1])


def test_absent_names_max_are_kept_and_one_more_ends_the_oldest():
    names = followed()
    for number in range(ABSENT_NAMES_MAX):
        put(names, f"n{number}", base=f"n{number}")
    assert len(names) == ABSENT_NAMES_MAX
    assert names.find("n0", 0.0) == ANSWER

    put(names, "one-more", base="one-more")

    assert len(names) == ABSENT_NAMES_MAX
    assert names.find("n0", 0.0) is None
    assert names.find("n1", 0.0) == ANSWER
    assert names.find("one-more", 0.0) == ANSWER


def test_absent_answer_bytes_max_are_kept_and_one_more_ends_the_oldest():
    half = bytes(ABSENT_ANSWER_BYTES_MAX // 2)
    names = followed()
    put(names, "a", base="a", answer=half)
    put(names, "b", base="b", answer=half)
    assert names.find("a", 0.0) == half

    put(names, "c", base="c", answer=b"1")

    assert names.find("a", 0.0) is None
    assert names.find("b", 0.0) == half
    assert not put(names, "d", base="d", answer=bytes(ABSENT_ANSWER_BYTES_MAX + 1))


def test_absent_name_ms_max_is_given_and_one_more_is_not():
    names = followed()
    put(names)

    find_until(names, TTL_S)
    assert names.find(NAME, (ABSENT_NAME_MS_MAX - 1) / 1_000) == ANSWER
    assert names.find(NAME, (ABSENT_NAME_MS_MAX + 1) / 1_000) is None


def test_names_that_expired_make_room():
    names = followed()
    put(names, "a", base="a")
    put(names, "b", base="b", now=TTL_S)

    assert len(names) == 1


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "created", "created_here", "forget", "reset", "advance"]),
        st.sampled_from(["x", "y", "x-partition-1", "x-partition-2"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(steps)
def test_what_is_counted_is_what_is_kept(history):
    names = followed(names_max=3, answer_bytes_max=20)
    for number, (step, name, position) in enumerate(history):
        base = name.partition("-")[0]
        match step:
            case "put":
                names.put(SHARD, name, base, b"1" * (position % 9), position=99, now=number / 10)
            case "created":
                names.created(SHARD, [base], position=position)
            case "created_here":
                names.created_here(SHARD, position, [base])
            case "forget":
                names.forget(name)
            case "reset":
                names.reset(SHARD)
            case "advance":
                names.advance(SHARD, position)

        kept = names._absences
        assert len(kept) <= 3
        assert names._answer_bytes == sum(len(each.answer) for each in kept.values()) <= 20
        partitions = {name for name in kept if "-" in name}
        assert set().union(*names._partitions.values()) == partitions
