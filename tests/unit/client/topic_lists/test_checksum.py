"""CRC-32C of joined texts, against the checksum of the whole text."""

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from nextgen.client.topic_lists.checksum import EMPTY, joined, part_of, power_of, without_beginning
from nextgen.client.topic_lists.checksum_tree import ChecksumTree


@given(st.lists(st.binary(max_size=600), max_size=8))
def test_joined_parts_have_the_checksum_of_the_whole_text(texts):
    whole = EMPTY
    for text in texts:
        whole = joined(whole, part_of(text))
    assert whole == part_of(b"".join(texts))
    assert whole.checksum == crc32c(b"".join(texts))


@given(st.binary(max_size=50), st.binary(max_size=600))
def test_a_beginning_can_be_taken_off(beginning, rest):
    whole = crc32c(beginning + rest)
    assert without_beginning(part_of(beginning), whole, len(rest)) == crc32c(rest)


def test_the_power_of_a_length_beyond_one_table_is_that_of_as_many_zero_bytes():
    text = b"a"
    for length in (255, 256, 257, 65_536, 1_000_003):
        behind = part_of(text + b"\0" * length)
        assert joined(part_of(text), part_of(b"\0" * length)) == behind
        assert power_of(length + 1) == behind.power


@given(st.data())
def test_a_tree_has_the_checksum_of_its_parts_after_any_changes(data):
    tree, texts = ChecksumTree(), []
    for _ in range(data.draw(st.integers(1, 30))):
        text = data.draw(st.binary(max_size=12))
        step = data.draw(st.sampled_from(["insert", "replace", "remove", "ask", "cut"]))
        index = data.draw(st.integers(0, max(0, len(texts) - 1)))
        if step == "insert" or not texts:
            tree.insert(index, part_of(text))
            texts.insert(index, text)
        elif step == "replace":
            tree.replace(index, part_of(text))
            texts[index] = text
        elif step == "remove":
            tree.remove(index)
            del texts[index]
        elif step == "cut":
            assert tree.cut(index) == [part_of(each) for each in texts[index:]]
            del texts[index:]
        if step == "ask":
            assert tree.whole() == part_of(b"".join(texts))
    assert len(tree) == len(texts)
    assert tree.whole() == part_of(b"".join(texts))
