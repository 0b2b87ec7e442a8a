"""Page tokens."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.domain.page import (
    InvalidPageToken,
    PageToken,
    _digest,
    parse_page_token,
    scope_of,
)
from nextgen.kernel.limits.cluster import SHARDS_MAX, TOPIC_TEXT_CHARACTERS_MAX
from nextgen.kernel.limits.listing import PAGE_TOKEN_CHARACTERS_MAX
from nextgen.kernel.limits.stream import POSITION_MAX

BASE64 = frozenset(string.ascii_letters + string.digits + "-_")
names = st.text(st.characters(exclude_categories=["Cs"]))


@given(names, st.dictionaries(st.integers(1, SHARDS_MAX), st.integers(1, POSITION_MAX), max_size=5))
def test_a_token_leads_back_to_its_name_and_its_positions(name, positions):
    token = PageToken(name, positions, scope_of("topics", "t/n"))

    assert parse_page_token(str(token)) == token


@given(st.text())
def test_any_text_is_a_token_or_refused(text):
    try:
        token = parse_page_token(text)
    except InvalidPageToken:
        return
    assert isinstance(token.after, str)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '["a"]',
        '["a", 1]',
        '[1, ""]',
        '["a", "", 5]',
        '["a", "", [1]]',
        '["a", "", [1, -1]]',
        '["a", "", [1, 9223372036854775808]]',
        '["a", "", [1, 0.5]]',
        '["\\ud800", ""]',
        "{}",
        "[" * 100_000,
    ],
)
def test_content_that_no_page_has_is_refused(content):
    text = content.encode()
    token = base64.urlsafe_b64encode(b"\x01" + _digest(text) + text).decode()

    with pytest.raises(InvalidPageToken):
        parse_page_token(token)


@given(st.data())
def test_a_token_that_was_altered_at_any_place_is_refused(data):
    token = str(PageToken("persistent://t/n/ü", {1: 7, 2: 5}, scope_of("topics", "t/n")))
    place = data.draw(st.integers(0, len(token.rstrip("=")) - 1))
    other = data.draw(st.sampled_from(sorted(BASE64 - {token[place]})))
    altered = token[:place] + other + token[place + 1 :]

    if base64.urlsafe_b64decode(altered) == base64.urlsafe_b64decode(token):
        assert parse_page_token(altered) == parse_page_token(token)
    else:
        with pytest.raises(InvalidPageToken, match="begin the listing again"):
            parse_page_token(altered)


def test_the_first_page_has_the_empty_token():
    assert parse_page_token("") == PageToken()


def test_a_token_of_an_earlier_release_is_a_name_alone_and_refused():
    """It does not tell of which listing it is."""
    token = base64.urlsafe_b64encode("persistent://t/n/ü".encode()).decode()

    with pytest.raises(InvalidPageToken):
        parse_page_token(token)


def test_the_longest_token_is_within_page_token_characters_max():
    positions = dict.fromkeys(range(10_000, 10_000 + SHARDS_MAX), 10**12)
    token = PageToken("x" * TOPIC_TEXT_CHARACTERS_MAX, positions, scope_of(""))

    assert parse_page_token(str(token)) == token


def test_page_token_characters_max_is_accepted_and_one_more_refused():
    without_name = base64.urlsafe_b64decode(str(PageToken("", {}, scope_of(""))))
    name = "x" * (PAGE_TOKEN_CHARACTERS_MAX // 4 * 3 - len(without_name))
    token = PageToken(name, {}, scope_of(""))

    assert len(str(token)) == PAGE_TOKEN_CHARACTERS_MAX
    assert parse_page_token(str(token)) == token
    with pytest.raises(InvalidPageToken):
        parse_page_token(str(PageToken(name + "x", {}, scope_of(""))))
