"""``docs/limits.md`` says what is: every limit, and for every bound a test at it."""

from tests.support import limits
from tests.support.limit_tests import TESTED_BY, UNTESTED, UNTESTED_MAX


def test_the_page_of_limits_is_up_to_date():
    # Then: a change of a limit, its uses or its tests came with a new page.
    assert limits.PAGE.read_text() == limits.page(), limits.REGENERATE


def test_every_bound_is_tried_at_its_limit_and_at_one_more():
    # Then: no bound is without a test but those that are listed, and none is listed in vain.
    assert sorted(limits.untested() - set(UNTESTED)) == [], (
        "name a test after the bound in lower case, and try the limit and one more in it"
    )
    assert sorted(set(UNTESTED) - limits.untested()) == [], "tested: take it from UNTESTED"
    assert len(UNTESTED) <= UNTESTED_MAX, "the list of untested bounds only gets shorter"


def test_every_test_that_is_named_for_a_bound_exists():
    named = {test for tests in TESTED_BY.values() for test in tests}

    assert sorted(named - limits.test_names()) == []
    assert sorted(set(TESTED_BY) - {limit.name for limit in limits.limits()}) == []


PROMISES = {"METRIC_SERIES_PER_PROCESS_MAX", "METRIC_SERIES_PER_SHARD_MAX"}
"""What a test counts and no code can enforce."""


def test_every_bound_is_enforced_somewhere():
    # Then: no bound is merely written down. One may be used by other limits only.
    names = {limit.name for limit in limits.limits() if limit.is_bound}
    used_by_limits = {
        word
        for path in limits.LIMITS
        for line in path.read_text().splitlines()
        if not line.startswith('"""')
        for word in limits.WORD.findall(line.partition("=")[2])
    }

    assert sorted(names - PROMISES - set(limits.users()) - used_by_limits) == []
