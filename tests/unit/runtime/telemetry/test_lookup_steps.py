"""Marks of a lookup's steps: what they say, and how others' traces are found."""

from __future__ import annotations

from nextgen.runtime.telemetry import lookup_steps, tracing
from tests.support.observability.traced import recorded_traces


def test_steps_are_numbered_as_the_seed_numbers_them():
    assert list(lookup_steps.STEP_NAMES) == list(range(1, 24))
    assert len(set(lookup_steps.STEP_NAMES.values())) == 23


def test_without_tracing_nothing_is_marked():
    lookup_steps.step(9)
    lookup_steps.ahead(13, "")


def test_a_mark_is_a_span_without_length_below_the_current_one():
    with recorded_traces() as recorded, tracing.span("look up", ""):
        lookup_steps.step(19, position=7)

    mark, above = recorded.spans
    assert mark.name == "step 19 assign topic to broker"
    assert mark.start_time == mark.end_time
    assert mark.parent.span_id == above.get_span_context().span_id
    assert dict(mark.attributes) == {"step": 19, "position": 7}


def test_what_happened_ahead_names_the_trace_in_which_it_did():
    with recorded_traces() as recorded:
        lookup_steps.ahead(16, "ab" * 16)

    assert dict(recorded.spans[0].attributes) == {"step": 16, "ahead": True, "trace": "ab" * 16}


def test_both_ends_derive_the_same_trace_and_different_things_have_different_ones():
    parents = {
        lookup_steps.session_parent("s"),
        lookup_steps.session_parent("t"),
        lookup_steps.grant_parent("s"),
        lookup_steps.lease_parent(1, "s"),
        lookup_steps.lease_parent(2, "s"),
    }

    assert len(parents) == 5
    assert all(tracing.parse_traceparent(each) is not None for each in parents)
    assert lookup_steps.session_parent("s") in parents


def test_an_assignment_refers_to_the_traces_that_the_marks_are_in():
    references = lookup_steps.references(3, "s")
    with recorded_traces() as recorded:
        lookup_steps.step(1, lookup_steps.session_parent("s"))
        lookup_steps.step(6, lookup_steps.grant_parent("s"))
        lookup_steps.step(5, lookup_steps.lease_parent(3, "s"))

    found = [f"{span.get_span_context().trace_id:032x}" for span in recorded.spans]
    assert found == [references[name] for name in lookup_steps.REFERENCES]
