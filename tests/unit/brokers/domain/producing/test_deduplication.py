from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.producing.deduplication import Chunk, ProducerSequence, last_sequence_id


def test_what_was_let_in_is_not_let_in_again():
    sequence = ProducerSequence(highest=-1)

    assert sequence.admit(0, 0, None)
    assert not sequence.admit(0, 0, None)
    assert sequence.admit(1, 4, None)
    assert not sequence.admit(1, 4, None)
    assert not sequence.admit(3, 3, None)
    assert sequence.highest == 4


def test_a_batch_that_is_new_in_part_is_stored():
    sequence = ProducerSequence(highest=7)

    assert sequence.admit(5, 9, None)
    assert sequence.highest == 9


def test_numbers_may_be_left_out():
    sequence = ProducerSequence(highest=7)

    assert sequence.admit(1_000, 1_000, None)
    assert not sequence.admit(999, 999, None)


def test_the_chunks_of_a_message_share_its_number_and_each_is_stored_once():
    sequence = ProducerSequence(highest=2)
    chunks = [Chunk(chunk_id, 3) for chunk_id in range(3)]

    assert [sequence.admit(3, 3, chunk) for chunk in chunks[:2]] == [True, True]
    # The connection broke: the client sends what was not acknowledged once more.
    assert [sequence.admit(3, 3, chunk) for chunk in chunks] == [False, False, True]
    assert sequence.highest == 3
    assert [sequence.admit(3, 3, chunk) for chunk in chunks] == [False, False, False]


def test_a_chunked_message_counts_when_its_last_chunk_is_in():
    sequence = ProducerSequence(highest=2)

    sequence.admit(3, 3, Chunk(0, 2))

    assert sequence.highest == 2
    assert sequence.admit(3, 3, Chunk(1, 2))
    assert sequence.highest == 3


def test_what_is_begun_may_be_told_from_outside():
    sequence = ProducerSequence(highest=2)

    sequence.recall(3, 1)

    assert not sequence.admit(3, 3, Chunk(0, 4))
    assert not sequence.admit(3, 3, Chunk(1, 4))
    assert sequence.admit(3, 3, Chunk(2, 4))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4)), max_size=30))
def test_what_was_sent_twice_in_a_row_is_stored_once(sends: list[tuple[int, int]]):
    """Whatever a client sends, sending it all once more right away changes nothing."""
    sequence = ProducerSequence(highest=-1)

    for first, count in sends:
        sequence.admit(first, first + count - 1, None)
        assert not sequence.admit(first, first + count - 1, None)


def test_the_last_number_of_a_batch_is_what_the_client_says():
    assert last_sequence_id(5, 0) == 5
    assert last_sequence_id(5, 30) == 30
    assert last_sequence_id(0, 0) == 0
