"""The two parents, tenant and namespace, tested without a log, a network or a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from shards.domain import namespace, tenant
from shards.domain.life import Life
from shards.domain.parent import AbortDeletion, FinishDeletion, SetProperties, StartDeletion
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises

PROPERTIES = (("owner", "payments"),)


@dataclass(frozen=True)
class ParentUnderTest:
    """One of the aggregates: its module, the prefix of its types, and what only it is made of."""

    module: ModuleType
    prefix: str
    name: str
    further: tuple[str, ...] = ()

    def create(self, parent_id: str, properties: Any = ()) -> Any:
        return self._type("Create", after=False)(parent_id, self.name, *self.further, properties)

    def created(self, parent_id: str = "id-1", properties: Any = ()) -> Any:
        return self._type("Created")(parent_id, self.name, *self.further, properties)

    def state(self, version: int, properties: Any = PROPERTIES) -> Any:
        fields = ("id-1", self.name, *self.further, properties, version, Life.ACTIVE)
        return self._type("")(*fields)

    def event(self, suffix: str, *fields: Any) -> Any:
        return self._type(suffix)(self.name, *fields)

    def decide(self, history: tuple[Any, ...], command: Any) -> Any:
        return self.module.decide(self.after(*history), command)

    def after(self, *history: Any) -> Any:
        return fold(self.module.evolve, self.module.INITIAL, history)

    def _type(self, word: str, *, after: bool = True) -> Any:
        name = self.prefix + word if after else word + self.prefix
        return getattr(self.module, name)


TENANT = ParentUnderTest(tenant, "Tenant", "acme")
NAMESPACE = ParentUnderTest(namespace, "Namespace", "acme/orders", ("tenant-1",))


@pytest.fixture(params=[TENANT, NAMESPACE], ids=["tenant", "namespace"])
def parent(request: pytest.FixtureRequest) -> ParentUnderTest:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def created(parent: ParentUnderTest) -> tuple[Any, ...]:
    """The history of a parent that is active."""
    return (parent.created("id-1", PROPERTIES),)


@pytest.fixture
def deleting(parent: ParentUnderTest, created: tuple[Any, ...]) -> tuple[Any, ...]:
    """The history of a parent whose deletion was started."""
    return (*created, parent.event("DeletionStarted"))


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_creating_a_parent_emits_that_it_was_created(parent, created):
    assert parent.decide((), parent.create("id-1", PROPERTIES)) == Accepted(created)


def test_a_created_parent_is_active_at_version_1(parent, created):
    assert parent.after(*created) == parent.state(1)


def test_creating_with_the_same_id_again_is_a_retry(parent, created):
    assert parent.decide(created, parent.create("id-1", PROPERTIES)) == Accepted(())


def test_a_second_parent_of_the_same_name_is_rejected(parent, created, deleting):
    for history in (created, deleting):
        decision = parent.decide(history, parent.create("id-2"))

        assert code_of(decision) is RejectionCode.ALREADY_EXISTS


def test_creating_with_too_many_properties_is_rejected(parent):
    properties = tuple((f"key-{number:03}", "") for number in range(PROPERTIES_MAX + 1))

    decision = parent.decide((), parent.create("id-1", properties))

    assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED


def test_setting_properties_replaces_them_all_and_moves_the_version(parent, created):
    tier = (("tier", "1"),)

    decision = parent.decide(created, SetProperties(parent.name, tier, expected_version=1))

    assert decision == Accepted((parent.event("PropertiesSet", tier),))
    assert parent.after(*created, *decision.events) == parent.state(2, tier)


def test_setting_properties_is_rejected(parent, created, deleting):
    for history, expected_version, code in (
        ((), 0, RejectionCode.NOT_FOUND),
        (created, 7, RejectionCode.VERSION_MISMATCH),
        (deleting, 0, RejectionCode.NOT_ALLOWED),
    ):
        command = SetProperties(parent.name, (), expected_version)

        assert code_of(parent.decide(history, command)) is code


def test_setting_too_large_properties_is_rejected(parent, created):
    command = SetProperties(parent.name, (("key", "x" * 5_000),))

    assert code_of(parent.decide(created, command)) is RejectionCode.LIMIT_EXCEEDED


def test_a_deletion_is_started_once(parent, created, deleting):
    first = parent.decide(created, StartDeletion(parent.name))
    second = parent.decide(deleting, StartDeletion(parent.name))

    assert first == Accepted(deleting[1:])
    assert second == Accepted(())


def test_deleting_an_absent_parent_is_rejected(parent):
    assert code_of(parent.decide((), StartDeletion(parent.name))) is RejectionCode.NOT_FOUND


def test_an_aborted_deletion_leaves_the_parent_active(parent, deleting):
    decision = parent.decide(deleting, AbortDeletion(parent.name, "id-1"))

    assert decision == Accepted((parent.event("DeletionAborted"),))
    assert parent.after(*deleting, *decision.events) == parent.state(3)


def test_aborting_for_a_parent_that_is_gone_is_rejected(parent):
    for history in ((), (parent.created("id-2"),)):
        decision = parent.decide(history, AbortDeletion(parent.name, "id-1"))

        assert code_of(decision) is RejectionCode.NOT_FOUND


def test_a_finished_deletion_removes_the_parent(parent, deleting):
    decision = parent.decide(deleting, FinishDeletion(parent.name, "id-1"))

    assert decision == Accepted((parent.event("Deleted", "id-1"),))
    assert parent.after(*deleting, *decision.events) is None


def test_a_deletion_that_was_not_started_cannot_be_finished(parent, created):
    decision = parent.decide(created, FinishDeletion(parent.name, "id-1"))

    assert code_of(decision) is RejectionCode.NOT_ALLOWED


def test_finishing_does_not_delete_another_parent_of_the_same_name(parent):
    other = (parent.created("id-2"), parent.event("DeletionStarted"))

    assert parent.decide(other, FinishDeletion(parent.name, "id-1")) == Accepted(())


ids = st.sampled_from(["id-1", "id-2"])
properties = st.sampled_from([(), PROPERTIES, (("a", "1"), ("b", "ü"))])


def commands_of(parent: ParentUnderTest) -> st.SearchStrategy[Any]:
    name = st.just(parent.name)
    return st.one_of(
        st.builds(parent.create, ids, properties),
        st.builds(SetProperties, name, properties, st.integers(0, 3)),
        st.builds(StartDeletion, name),
        st.builds(AbortDeletion, name, ids),
        st.builds(FinishDeletion, name, ids),
    )


@pytest.mark.parametrize(
    ("parent", "kind"),
    [(TENANT, StateKind.TENANT), (NAMESPACE, StateKind.NAMESPACE)],
    ids=["tenant", "namespace"],
)
@given(data=st.data(), cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(parent, kind, data, cut):
    commands = commands_of(parent)
    history = data.draw(st.lists(commands, max_size=15))
    command = data.draw(commands)
    aggregate = AggregateUnderTest(
        parent.module.decide, parent.module.evolve, kind, lambda state: state.name
    )
    check_all_promises(aggregate, history, command, cut)


# Renames ------------------------------------------------------------------------------------------

MARKED = (("nextgen.rename.from_id", "id-0"), ("owner", "payments"))
MARK = MARKED[:1]


@pytest.fixture
def renamed(parent: ParentUnderTest) -> tuple[Any, ...]:
    """The history of a parent that is what another one is renamed to."""
    return (parent.created("id-1", MARKED),)


def renaming(parent: ParentUnderTest, parent_id: str, properties: Any = MARKED) -> Any:
    return replace(parent.create(parent_id, properties), is_rename=True)


def test_a_rename_goes_on_at_what_it_created_before_and_at_nothing_else(parent, created, renamed):
    assert parent.decide((), renaming(parent, "id-1")) == Accepted(renamed)
    assert parent.decide(renamed, renaming(parent, "id-2")) == Accepted(())
    for history, properties in (
        (created, MARKED),
        (renamed, (("nextgen.rename.from_id", "id-other"),)),
        (renamed, ()),
        (created, ()),
    ):
        decision = parent.decide(history, renaming(parent, "id-2", properties))
        assert code_of(decision) is RejectionCode.ALREADY_EXISTS


def test_a_rename_does_not_go_on_at_what_is_being_deleted(parent, renamed):
    deleting = (*renamed, parent.event("DeletionStarted"))
    decision = parent.decide(deleting, renaming(parent, "id-2"))
    assert code_of(decision) is RejectionCode.NOT_ALLOWED


def test_nobody_but_a_rename_makes_marks(parent, created, renamed):
    forged = (("nextgen.rename.from_id", "id-other"), ("nextgen.rename.to", "x"), *PROPERTIES)
    assert parent.decide((), parent.create("id-1", forged)) == Accepted(created)
    for history in (created, renamed):
        assert parent.decide(history, SetProperties(parent.name, forged)) == Accepted(())
    changed = SetProperties(parent.name, (("nextgen.rename.from_id", "id-other"),))
    marking = replace(changed, is_rename=True)
    assert parent.decide(renamed, marking).events == (
        parent.event("PropertiesSet", changed.properties),
    )


def test_marks_stay_whatever_properties_are_set(parent, renamed):
    for wanted in ((), MARK):
        decision = parent.decide(renamed, SetProperties(parent.name, wanted))
        assert decision == Accepted((parent.event("PropertiesSet", MARK),))
    assert parent.decide(renamed, SetProperties(parent.name, PROPERTIES)) == Accepted(())


def test_marks_do_not_count_against_the_limits_of_properties(parent):
    full = tuple((f"key-{number:03}", "") for number in range(PROPERTIES_MAX))
    decision = parent.decide((), renaming(parent, "id-1", (*full, *MARK)))
    assert isinstance(decision, Accepted)
    decision = parent.decide((), renaming(parent, "id-1", (*full, ("key-x", ""), *MARK)))
    assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED


def test_a_deletion_begins_at_the_expected_version_and_goes_on_at_any(parent, created, deleting):
    begun = parent.decide(created, StartDeletion(parent.name, expected_version=1))
    assert begun == Accepted(deleting[1:])
    late = parent.decide(created, StartDeletion(parent.name, expected_version=2))
    assert code_of(late) is RejectionCode.VERSION_MISMATCH
    again = parent.decide(deleting, StartDeletion(parent.name, expected_version=1))
    assert again == Accepted(())
