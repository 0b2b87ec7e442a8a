"""The tenant aggregate, tested without a log, a network or a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.cluster import PROPERTIES_MAX
from shards.domain.life import Life
from shards.domain.parent import AbortDeletion, FinishDeletion, SetProperties, StartDeletion
from shards.domain.states import StateKind
from shards.domain.tenant import (
    INITIAL,
    CreateTenant,
    Tenant,
    TenantCreated,
    TenantDeleted,
    TenantDeletionAborted,
    TenantDeletionStarted,
    TenantPropertiesSet,
    decide,
    evolve,
)
from tests.support.aggregate_properties import AggregateUnderTest, check_all_promises

PROPERTIES = (("owner", "payments"),)
CREATED = TenantCreated("id-1", "acme", PROPERTIES)
STARTED = TenantDeletionStarted("acme")


def given_events(*events):
    return fold(evolve, INITIAL, events)


def code_of(decision):
    assert isinstance(decision, Rejected)
    return decision.code


def test_creating_a_tenant_emits_tenant_created():
    assert decide(INITIAL, CreateTenant("id-1", "acme", PROPERTIES)) == Accepted((CREATED,))


def test_a_created_tenant_is_active_at_version_1():
    assert given_events(CREATED) == Tenant("id-1", "acme", PROPERTIES, 1, Life.ACTIVE)


def test_creating_with_the_same_id_again_is_a_retry():
    assert decide(given_events(CREATED), CreateTenant("id-1", "acme", PROPERTIES)) == Accepted(())


@pytest.mark.parametrize("history", [(CREATED,), (CREATED, STARTED)], ids=["active", "deleting"])
def test_a_second_tenant_of_the_same_name_is_rejected(history):
    decision = decide(given_events(*history), CreateTenant("id-2", "acme"))

    assert code_of(decision) is RejectionCode.ALREADY_EXISTS


def test_creating_with_too_many_properties_is_rejected():
    properties = tuple((f"key-{number:03}", "") for number in range(PROPERTIES_MAX + 1))

    decision = decide(INITIAL, CreateTenant("id-1", "acme", properties))

    assert code_of(decision) is RejectionCode.LIMIT_EXCEEDED


def test_setting_properties_replaces_them_all_and_moves_the_version():
    command = SetProperties("acme", (("tier", "1"),), expected_version=1)

    decision = decide(given_events(CREATED), command)

    assert decision == Accepted((TenantPropertiesSet("acme", (("tier", "1"),)),))
    after = fold(evolve, given_events(CREATED), decision.events)
    assert after == Tenant("id-1", "acme", (("tier", "1"),), 2, Life.ACTIVE)


@pytest.mark.parametrize(
    ("history", "expected_version", "code"),
    [
        pytest.param((), 0, RejectionCode.NOT_FOUND, id="absent"),
        pytest.param((CREATED,), 7, RejectionCode.VERSION_MISMATCH, id="stale-version"),
        pytest.param((CREATED, STARTED), 0, RejectionCode.NOT_ALLOWED, id="deleting"),
    ],
)
def test_setting_properties_is_rejected(history, expected_version, code):
    command = SetProperties("acme", (), expected_version)

    assert code_of(decide(given_events(*history), command)) is code


def test_setting_too_large_properties_is_rejected():
    command = SetProperties("acme", (("key", "x" * 5_000),))

    assert code_of(decide(given_events(CREATED), command)) is RejectionCode.LIMIT_EXCEEDED


def test_a_deletion_is_started_once():
    first = decide(given_events(CREATED), StartDeletion("acme"))
    second = decide(given_events(CREATED, STARTED), StartDeletion("acme"))

    assert first == Accepted((STARTED,))
    assert second == Accepted(())


def test_deleting_an_absent_tenant_is_rejected():
    assert code_of(decide(INITIAL, StartDeletion("acme"))) is RejectionCode.NOT_FOUND


def test_an_aborted_deletion_leaves_the_tenant_active():
    decision = decide(given_events(CREATED, STARTED), AbortDeletion("acme", "id-1"))

    assert decision == Accepted((TenantDeletionAborted("acme"),))
    after = given_events(CREATED, STARTED, TenantDeletionAborted("acme"))
    assert after == Tenant("id-1", "acme", PROPERTIES, 3, Life.ACTIVE)


@pytest.mark.parametrize("history", [(), (TenantCreated("id-2", "acme"),)], ids=["gone", "other"])
def test_aborting_for_a_tenant_that_is_gone_is_rejected(history):
    decision = decide(given_events(*history), AbortDeletion("acme", "id-1"))

    assert code_of(decision) is RejectionCode.NOT_FOUND


def test_a_finished_deletion_removes_the_tenant():
    decision = decide(given_events(CREATED, STARTED), FinishDeletion("acme", "id-1"))

    assert decision == Accepted((TenantDeleted("acme", "id-1"),))
    assert given_events(CREATED, STARTED, TenantDeleted("acme", "id-1")) is None


def test_a_deletion_that_was_not_started_cannot_be_finished():
    decision = decide(given_events(CREATED), FinishDeletion("acme", "id-1"))

    assert code_of(decision) is RejectionCode.NOT_ALLOWED


def test_finishing_does_not_delete_another_tenant_of_the_same_name():
    other = given_events(TenantCreated("id-2", "acme"), STARTED)

    assert decide(other, FinishDeletion("acme", "id-1")) == Accepted(())


ids = st.sampled_from(["id-1", "id-2"])
properties = st.sampled_from([(), PROPERTIES, (("a", "1"), ("b", "ü"))])
commands = st.one_of(
    st.builds(CreateTenant, ids, st.just("acme"), properties),
    st.builds(SetProperties, st.just("acme"), properties, st.integers(0, 3)),
    st.builds(StartDeletion, st.just("acme")),
    st.builds(AbortDeletion, st.just("acme"), ids),
    st.builds(FinishDeletion, st.just("acme"), ids),
)
TENANT = AggregateUnderTest(decide, evolve, StateKind.TENANT, lambda state: state.name)


@given(history=st.lists(commands, max_size=15), command=commands, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(TENANT, history, command, cut)
