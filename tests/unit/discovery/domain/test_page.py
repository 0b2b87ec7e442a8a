"""Pages over all shards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.domain.page import InvalidPageToken, merged_page, page_token, parse_page_token

names = st.lists(st.text(max_size=5), unique=True, max_size=30)


def page_of(shards, items_max=100, bytes_max=1_000):
    return merged_page(shards, name_of=str, size_of=len, items_max=items_max, bytes_max=bytes_max)


@given(st.text())
def test_a_token_leads_back_to_its_name(name):
    assert parse_page_token(page_token(name)) == name


@given(st.text())
def test_any_text_is_a_token_or_refused(text):
    try:
        name = parse_page_token(text)
    except InvalidPageToken:
        return
    assert isinstance(name, str)


def test_the_first_page_has_the_empty_token():
    assert parse_page_token("") == ""


@given(all_names=names, shard_count=st.integers(1, 5), items_max=st.integers(1, 10))
def test_page_by_page_gives_everything_once_in_order(all_names, shard_count, items_max):
    shards = [sorted(all_names[at::shard_count]) for at in range(shard_count)]
    listed, after, has_more = [], None, True
    while has_more:
        rest = [[name for name in shard if after is None or name > after] for shard in shards]
        page, has_more = page_of(rest, items_max)
        assert len(page) <= items_max
        listed += page
        after = page[-1] if page else None

    assert listed == sorted(all_names)


@pytest.mark.parametrize(("bytes_max", "expected"), [(5, ["aa", "bbb"]), (4, ["aa"]), (1, ["aa"])])
def test_a_page_ends_before_it_gets_too_big_but_is_never_empty(bytes_max, expected):
    page, is_cut = page_of([["aa", "cc"], ["bbb"]], bytes_max=bytes_max)

    assert (page, is_cut) == (expected, True)
