"""``docs/rest.md`` says which policies are enforced, as the table does."""

from nextgen.pulsar.policies.policy_table import POLICIES
from tests.support import rest_page


def test_the_page_of_policies_is_up_to_date():
    assert rest_page.PAGE.read_text() == rest_page.page(), rest_page.REGENERATE


def test_names_and_fields_of_policies_are_each_there_once():
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)
    assert len({policy.field for policy in POLICIES}) == len(POLICIES)
