"""The guards of how topics come into being: creates that share requests, and topics on demand."""

from __future__ import annotations

from nextgen.client.discovery.shared_creates import SharedCreates
from nextgen.client.routing.topic_creation import TopicCreation
from shards.assignment.placement_policies import _Followed
from shards.inventory import topic_creation
from tests.simulation.mutants.mutant import Edit, Mutant

_SHARED = ("tests/unit/client/discovery/test_shared_creates.py",)
_USE = ("tests/unit/shards/inventory/test_topic_use.py",)
_RULES = ("tests/unit/shards/assignment/test_placement_policies.py",)
_DIRECTORY = ("tests/unit/client/routing/test_topic_directory.py",)

MUTANTS = (
    Mutant(
        "fails-creates-for-anothers-fault",
        "C10",
        "what one topic of a shared request is refused for does not fail the others",
        (
            Edit(
                SharedCreates,
                "_send_batch",
                "len(sent) > 1 and isinstance(error, _ANOTHERS_FAULT)",
                "False",
            ),
        ),
        _SHARED,
    ),
    Mutant(
        "sends-creates-that-were-given-up",
        "C10",
        "a create whose caller gave up before it was sent is not sent",
        (Edit(SharedCreates, "_send_line", "if not each.created.done()", "if True"),),
        _SHARED,
    ),
    Mutant(
        "sends-creates-whose-time-is-over",
        "C10",
        "a create whose time passed while it waited is not sent",
        (Edit(SharedCreates, "_send_batch", "each.deadline - now < 1e-3", "False"),),
        _SHARED,
    ),
    Mutant(
        "creates-by-the-rule-of-another-namespace",
        "PO15",
        "the rule is that of the namespace that the topic is created in",
        (
            Edit(
                topic_creation,
                "_by_policy",
                "namespace_id != admission.parent_id",
                "False",
            ),
        ),
        _USE,
    ),
    Mutant(
        "acknowledges-properties-at-once",
        "PO9",
        "a property that rules creation is acknowledged like a policy",
        (
            Edit(
                _Followed,
                "on_events",
                "(self.policies, on_demand(self.state, self.policies)) != before",
                "self.policies != before[0]",
            ),
        ),
        _RULES,
    ),
    Mutant(
        "takes-refusals-of-before",
        "PO9",
        "a caller takes no refusal of a request that was sent before it asked",
        (Edit(TopicCreation, "_used", "sent > sent_before or ", "sent or "),),
        _DIRECTORY,
    ),
)
