"""Which facts of a source are facts of its shadows."""

from brokers.domain.topic_facts import source_facts


def test_schemas_and_the_end_are_facts_of_shadows_and_cursors_are_not() -> None:
    state = {
        "schema/0": b"a",
        "schema/12": b"b",
        "schemas_deleted": b"12",
        "terminated": b"",
        "cursor/schema/1": b"c",
        "shadow/persistent://t/ns/x": b"1:2",
    }

    facts = source_facts(state)

    assert sorted(facts) == ["schema/0", "schema/12", "schemas_deleted", "terminated"]
