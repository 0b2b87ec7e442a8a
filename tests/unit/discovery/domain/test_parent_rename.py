"""How far a rename of a tenant or namespace is, and which topics keep their names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.domain.parent_rename import (
    CheckedTo,
    Parent,
    Stage,
    check_grace,
    check_renamable,
    check_target,
    is_outdated,
    marked_new,
    marked_old,
    moved_name,
    other_target,
    parse_checked,
    stage_of,
    why_kept,
)
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.write import FORMER_NAMES_MAX, RENAME_GRACE_MS_MAX
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY

OLD = Parent("namespace", "id-1", "acme/old", {"owner": "ada"}, b"p", 1, 2, is_deleting=False)
MARKED = replace(OLD, properties=marked_old(OLD, "acme/new"))
NEW = replace(OLD, parent_id="id-2", name="acme/new", properties=marked_new(MARKED))
OTHERS = replace(NEW, properties={})
PAID = "persistent://acme/old/paid"


def refusal_of(work, *given):
    with pytest.raises(Refused) as refused:
        work(*given)
    return refused.value.code


@pytest.mark.parametrize(
    ("old", "new", "stage"),
    [
        (OLD, None, Stage.NEW),
        (MARKED, None, Stage.NEW),
        (MARKED, NEW, Stage.BEGUN),
        (replace(MARKED, is_deleting=True), NEW, Stage.BEGUN),
        (None, NEW, Stage.DONE),
        (None, None, RejectionCode.NOT_FOUND),
        (None, OTHERS, RejectionCode.NOT_FOUND),
        (OLD, OTHERS, RejectionCode.ALREADY_EXISTS),
        (MARKED, OTHERS, RejectionCode.ALREADY_EXISTS),
        (replace(OLD, parent_id="id-3"), NEW, RejectionCode.ALREADY_EXISTS),
        (replace(OLD, is_deleting=True), None, RejectionCode.NOT_ALLOWED),
        (MARKED, replace(NEW, is_deleting=True), RejectionCode.NOT_ALLOWED),
    ],
)
def test_each_pair_of_names_is_one_stage_or_refused(old, new, stage):
    given = "namespace", "acme/old", "acme/new", old, new
    if isinstance(stage, Stage):
        assert stage_of(*given) is stage
    else:
        assert refusal_of(stage_of, *given) == stage


def test_nothing_is_renamed_to_what_it_is_called():
    given = "namespace", OLD.name, OLD.name, OLD, OLD
    assert refusal_of(stage_of, *given) == RejectionCode.ALREADY_EXISTS


@pytest.mark.parametrize("name", ["pulsar", "pulsar/system"])
def test_the_clusters_own_keep_their_names(name):
    assert refusal_of(check_renamable, "tenant", name) == RejectionCode.NOT_ALLOWED


def test_a_rename_to_another_name_goes_on_while_what_it_created_is_there():
    assert other_target(MARKED, "acme/new") == ""
    assert other_target(OLD, "acme/third") == ""
    assert other_target(MARKED, "acme/third") == "acme/new"
    assert refusal_of(check_target, MARKED, NEW, "acme/new") == RejectionCode.NOT_ALLOWED
    for target in (None, OTHERS):
        check_target(MARKED, target, "acme/new")


def test_marks_are_never_copied_from_one_rename_to_the_next():
    again = marked_new(NEW)
    assert again["owner"] == "ada"
    assert again["nextgen.rename.from_id"] == "id-2"
    assert "nextgen.rename.to" not in marked_new(MARKED)
    assert marked_old(NEW, "acme/third") == {"owner": "ada", "nextgen.rename.to": "acme/third"}


CHANGED = replace(MARKED, policies=b"q")


@pytest.mark.parametrize(
    ("old", "new", "is_copied"),
    [
        (MARKED, NEW, False),
        (CHANGED, NEW, True),
        (replace(MARKED, properties={**MARKED.properties, "owner": "bob"}), NEW, True),
        (MARKED, replace(NEW, policies=b"r"), False),
        (CHANGED, replace(NEW, policies=b"q"), False),
    ],
)
def test_what_was_changed_at_one_name_alone_is_what_holds(old, new, is_copied):
    assert is_outdated(old, new) is is_copied


def test_different_changes_at_both_names_are_left_to_the_operator():
    refused = refusal_of(is_outdated, CHANGED, replace(NEW, policies=b"r"))
    assert refused == RejectionCode.NOT_ALLOWED


@pytest.mark.parametrize(
    ("topic", "properties", "former", "has_shadows", "why"),
    [
        (PAID, {}, [], False, ""),
        (PAID, {"owner": "ada"}, [("persistent://acme/older/paid", 9)], False, ""),
        ("non-persistent://acme/old/paid", {}, [], False, ""),
        ("topic://acme/old/paid", {}, [], False, "is scalable"),
        ("persistent://acme/old/__change_events", {}, [], False, "is a system topic"),
        (PAID, {SHADOW_SOURCE_PROPERTY: "persistent://acme/a/b"}, [], False, "is a shadow"),
        (PAID, {}, [], True, "has shadows"),
        (PAID, {}, [("persistent://acme/new/paid", 9)], False, "former name persistent://acme/new"),
        (PAID, {}, [("persistent://acme/new/paid", 5)], False, ""),
        (PAID, {}, [(f"x-{n}", 9) for n in range(FORMER_NAMES_MAX)], False, "former names"),
        (PAID, {}, [(f"x-{n}", 9) for n in range(FORMER_NAMES_MAX - 1)], False, ""),
    ],
)
def test_which_topics_keep_their_names(topic, properties, former, has_shadows, why):
    given = topic, properties, former, "acme/new", 5
    found = why_kept(*given, has_shadows=has_shadows)
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize("local", ["paid", "a/b/c", "paid-partition-x"])
def test_a_topic_keeps_its_local_name(local):
    moved = moved_name(f"persistent://acme/old/{local}", "globex/new")
    assert moved == f"persistent://globex/new/{local}"


def test_a_grace_is_checked_before_anything_is_renamed():
    check_grace(RENAME_GRACE_MS_MAX)
    assert refusal_of(check_grace, RENAME_GRACE_MS_MAX + 1) == RejectionCode.LIMIT_EXCEEDED


def test_a_token_is_the_place_that_it_was_made_of():
    place = CheckedTo("a", "b", 7)
    assert parse_checked(str(place)) == place
    assert parse_checked("") == CheckedTo()


@pytest.mark.parametrize(
    "token", ["x", "[]", "{}", "1", '["a", "b", "c"]', "[1, 2, 3]", "[" * 9999]
)
def test_what_is_no_token_is_refused(token):
    with pytest.raises(InvalidRequest):
        parse_checked(token)
