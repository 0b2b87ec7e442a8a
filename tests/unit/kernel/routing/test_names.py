from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import (
    NAME_PART_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPIC_LOCAL_NAME_BYTES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)
from nextgen.kernel.routing.names import (
    SEGMENT_ID_MAX,
    Domain,
    InvalidName,
    NamespaceName,
    SegmentDescriptor,
    TopicName,
    Unit,
    assignment_key,
    parse_namespace,
    parse_tenant,
    parse_topic,
)

PERSISTENT = Domain.PERSISTENT

parts = st.from_regex(r"[-=:.A-Za-z0-9_]{1,20}", fullmatch=True).filter(
    lambda part: part not in {".", ".."}
)
digits = st.integers(0, PARTITIONS_PER_TOPIC_MAX - 1)
base_names = st.text(
    st.characters(exclude_characters="/", exclude_categories=("Cc", "Cs")), min_size=1, max_size=40
).filter(lambda name: name == name.strip() and name not in {".", ".."} and "://" not in name)


@st.composite
def topic_names(draw: st.DrawFn) -> TopicName:
    tenant, namespace, base_name = draw(parts), draw(parts), draw(base_names)
    domain = draw(st.sampled_from(list(Domain)))
    if domain is Domain.SEGMENT:
        start, end = sorted((draw(st.integers(0, 0xFFFF)), draw(st.integers(0, 0xFFFF))))
        descriptor = SegmentDescriptor(start, end, draw(st.integers(0, SEGMENT_ID_MAX)))
        return TopicName(domain, tenant, namespace, base_name, None, descriptor)
    if domain is Domain.TOPIC:
        deeper = draw(st.lists(base_names, max_size=2))
        return TopicName(domain, tenant, namespace, "/".join([base_name, *deeper]))
    return TopicName(domain, tenant, namespace, base_name, draw(st.none() | digits))


# What is accepted, and what it means ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", TopicName(PERSISTENT, "public", "default", "orders")),
        ("t/n/orders", TopicName(PERSISTENT, "t", "n", "orders")),
        ("persistent://t/n/orders", TopicName(PERSISTENT, "t", "n", "orders")),
        ("PERSISTENT://t/n/orders", TopicName(PERSISTENT, "t", "n", "orders")),
        ("non-persistent://t/n/orders", TopicName(Domain.NON_PERSISTENT, "t", "n", "orders")),
        (
            "persistent://t=1:x/n.2/a b%2F\u00e9",
            TopicName(PERSISTENT, "t=1:x", "n.2", "a b%2F\u00e9"),
        ),
        ("orders-partition-0", TopicName(PERSISTENT, "public", "default", "orders", 0)),
        ("t/n/caf\u00e9-partition-12", TopicName(PERSISTENT, "t", "n", "caf\u00e9", 12)),
        ("topic://t/n/orders", TopicName(Domain.TOPIC, "t", "n", "orders")),
        ("topic://t/n/eu/orders", TopicName(Domain.TOPIC, "t", "n", "eu/orders")),
        (
            "segment://t/n/eu/orders/8000-FFFF-07",
            TopicName(
                Domain.SEGMENT, "t", "n", "eu/orders", None, SegmentDescriptor(0x8000, 0xFFFF, 7)
            ),
        ),
    ],
)
def test_a_name_is_taken_apart(text: str, expected: TopicName) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize(
    "local",
    [
        "x-partition-",
        "x-partition-01",
        "x-partition-+1",
        "x-partition--1",
        "x-partition-one",
        "x-partition-1 a",
        "x-partition-\u0663",  # An Arabic-Indic three: a digit, not ASCII.
        "x-partition-2147483648",
        "x-partition-1-DLQ",
        "x-Partition-1",
        "-partition-",
    ],
)
def test_what_only_resembles_a_partition_suffix_is_part_of_an_ordinary_name(local: str) -> None:
    assert parse_topic(f"t/n/{local}") == TopicName(PERSISTENT, "t", "n", local)


def test_only_the_last_suffix_names_the_partition() -> None:
    name = parse_topic("t/n/x-partition-1-DLQ-partition-2")

    assert (name.base_name, name.partition) == ("x-partition-1-DLQ", 2)


@pytest.mark.parametrize(
    ("text", "canonical", "base", "routing_key", "unit"),
    [
        ("orders", "persistent://public/default/orders", None, "public/default/orders", ""),
        (
            "non-persistent://t/n/x-partition-3",
            "non-persistent://t/n/x-partition-3",
            "non-persistent://t/n/x",
            "t/n/x",
            "p3",
        ),
        (
            "segment://t/n/a/b/0-7FFF-12",
            "segment://t/n/a/b/0000-7fff-12",
            "topic://t/n/a/b",
            "t/n/a/b",
            "s12",
        ),
        ("topic://t/n/a/b", "topic://t/n/a/b", None, "t/n/a/b", ""),
    ],
)
def test_the_forms_of_a_name(
    text: str, canonical: str, base: str | None, routing_key: str, unit: str
) -> None:
    name = parse_topic(text)

    assert name.text == canonical
    assert name.base_text == (base or canonical)
    assert name.routing_key == routing_key
    assert name.unit.text == unit


def test_all_that_belongs_to_one_name_has_one_routing_key() -> None:
    texts = [
        "t/n/x",
        "non-persistent://t/n/x-partition-7",
        "topic://t/n/x",
        "segment://t/n/x/0000-ffff-0",
    ]

    assert {parse_topic(text).routing_key for text in texts} == {"t/n/x"}


def test_the_name_of_a_partition_is_made_from_the_name_of_its_topic() -> None:
    name = parse_topic("t/n/x")

    assert name.of_partition(3) == parse_topic("t/n/x-partition-3")
    assert name.namespace_name == NamespaceName("t", "n")
    assert name.namespace_text == "t/n"


def test_a_segment_has_no_partitions() -> None:
    with pytest.raises(AssertionError, match="has no partitions"):
        parse_topic("topic://t/n/x").of_partition(0)


def test_a_namespace_is_taken_apart() -> None:
    assert parse_namespace("acme/orders.v1") == NamespaceName("acme", "orders.v1")
    assert parse_namespace("acme/orders.v1").text == "acme/orders.v1"


# What is refused, and why ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty|empty part"),
        ("/", "two parts"),
        ("a/b", "two parts"),
        ("/a/b", "empty part"),
        ("a//b", "empty part"),
        ("a/b/", "empty part"),
        ("a/b/c/d", "first version"),
        ("persistent://a/b/c/d", "first version"),
        ("persistent://a/b/c/", "empty part"),
        ("persistent://a/b", "is not domain://tenant/namespace/topic"),
        ("persistent://", "is not domain://tenant/namespace/topic"),
        ("http://a/b/c", "unknown domain"),
        ("://a/b/c", "unknown domain"),
        ("persistent ://a/b/c", "unknown domain"),
        ("t\u00e9/n/x", "tenant name .* has a character other than"),
        ("t/n n/x", "namespace name .* has a character other than"),
        ("./n/x", "only dots"),
        ("t/../x", "only dots"),
        ("t/n/.", "only dots"),
        ("t/n/..", "only dots"),
        ("..", "only dots"),
        (" ", "white space"),
        ("t/n/ x", "white space"),
        ("t/n/x\u00a0", "white space"),
        ("t/n/x\n", "control character"),
        ("t/n/a\x00b", "control character"),
        ("t/n/a\x7fb", "control character"),
        ("t/n/a\x85b", "control character"),
        ("t/n/a\ud800b", "control character"),
        ("t/n/-partition-3", "partition of nothing"),
        ("t/n/..-partition-3", "partition of nothing"),
        ("t/n/a -partition-3", "partition of nothing"),
        ("t/n/x-partition-1-partition-2", "partition of a partition"),
        ("t/n/x-partition-2147483647", "at most 10000"),
        ("topic://t/n", "is not domain://"),
        ("topic://t/n/", "empty part"),
        ("topic://t/n/a//b", "empty part"),
        ("topic://t/n/a/../b", "only dots"),
        ("topic://t/n/x-partition-3", "a scalable topic has segments"),
        ("segment://t/n/x", "does not end in a segment descriptor"),
        ("segment://t/n/x/0-1", "does not end in a segment descriptor"),
        ("segment://t/n/x/0-1-2-3", "does not end in a segment descriptor"),
        ("segment://t/n/x/0-10000-3", "does not end in a segment descriptor"),
        ("segment://t/n/x/0-1-+3", "does not end in a segment descriptor"),
        ("segment://t/n/0000-7fff-3", "segment of nothing"),
        ("segment://t/n/x/8000-7fff-3", "ends before it starts"),
        ("segment://t/n/x-partition-3/0000-7fff-3", "a scalable topic has segments"),
        (f"segment://t/n/x/0-1-{SEGMENT_ID_MAX + 1}", "beyond 63 bits"),
    ],
)
def test_a_bad_topic_name_gets_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        parse_topic(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not of the form"),
        ("a", "not of the form"),
        ("a/b/c", "first version"),
        ("a/b/c/d", "not of the form"),
        ("/b", "tenant name '' is empty"),
        ("a/", "namespace name '' is empty"),
        ("a/..", "only dots"),
        ("a/b?", "has a character other than"),
    ],
)
def test_a_bad_namespace_name_gets_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        parse_namespace(text)


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "a\n", "\u00e9", "\u0663"])
def test_a_bad_tenant_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_tenant(text)


def test_the_message_is_one_line_and_short_whatever_the_name() -> None:
    with pytest.raises(InvalidName) as refusal:
        parse_topic("t/n/" + "\n\ud800" * 500)

    assert len(str(refusal.value)) < 1_000
    assert str(refusal.value).isprintable()


# Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", ["{}/n/x", "t/{}/x", "persistent://{}/n/a b"])
def test_a_tenant_or_namespace_may_be_as_long_as_the_limit(template: str) -> None:
    parse_topic(template.format("a" * NAME_PART_BYTES_MAX))

    with pytest.raises(InvalidName, match="at most 255"):
        parse_topic(template.format("a" * (NAME_PART_BYTES_MAX + 1)))


def test_a_tenant_may_be_as_long_as_the_limit() -> None:
    parse_tenant("a" * NAME_PART_BYTES_MAX)
    parse_namespace("t/" + "a" * NAME_PART_BYTES_MAX)

    with pytest.raises(InvalidName, match="at most 255"):
        parse_tenant("a" * (NAME_PART_BYTES_MAX + 1))
    with pytest.raises(InvalidName, match="at most 255"):
        parse_namespace("t/" + "a" * (NAME_PART_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("prefix", "filler", "suffix"),
    [
        ("t/n/", "a", ""),
        ("t/n/", "a", "-partition-12"),
        ("t/n/ab", "\u00e9", ""),  # Two bytes in UTF-8: bytes count, not characters.
        ("topic://t/n/a/", "a", ""),
        ("segment://t/n/", "a", "/0000-7fff-3"),
    ],
)
def test_a_local_name_may_be_as_long_as_the_limit(prefix: str, filler: str, suffix: str) -> None:
    fixed = len(prefix.split("n/", 1)[1].encode()) + len(suffix)
    count = (TOPIC_LOCAL_NAME_BYTES_MAX - fixed) // len(filler.encode())
    parse_topic(prefix + filler * count + suffix)

    with pytest.raises(InvalidName, match="at most 1024"):
        parse_topic(prefix + filler * (count + 1) + suffix)


def test_a_partition_number_may_be_as_high_as_the_limit() -> None:
    last = PARTITIONS_PER_TOPIC_MAX - 1
    assert parse_topic(f"t/n/x-partition-{last}").partition == last

    with pytest.raises(InvalidName, match="at most 10000"):
        parse_topic(f"t/n/x-partition-{PARTITIONS_PER_TOPIC_MAX}")


def test_a_segment_id_may_be_as_high_as_the_limit() -> None:
    name = parse_topic(f"segment://t/n/x/0-1-{SEGMENT_ID_MAX}")

    assert name.unit == Unit.segment(SEGMENT_ID_MAX)


def test_a_text_of_absurd_length_is_refused_unread() -> None:
    head = "persistent://t/n/"
    longest = head + " " * (TOPIC_TEXT_CHARACTERS_MAX - len(head))
    with pytest.raises(InvalidName, match="white space"):
        parse_topic(longest)

    with pytest.raises(InvalidName, match="2049 characters"):
        parse_topic(longest + " ")


# Properties -----------------------------------------------------------------------------------


@given(topic_names())
def test_every_name_survives_its_canonical_text(name: TopicName) -> None:
    """A made-up base name may look like a partition's own; then parsing finds that partition."""
    parsed = _outcome(name.text)
    if isinstance(parsed, str):
        assert "partition" in parsed
        return

    assert isinstance(parsed, TopicName)
    assert parsed.text == name.text
    assert parse_topic(parsed.text) == parsed
    assert parse_topic(parsed.base_text).base_text == parsed.base_text
    assert parse_topic(parsed.base_text).routing_key == parsed.routing_key
    assert parse_topic(parsed.base_text).unit == Unit.whole()
    if "-partition-" not in name.base_name:
        assert parsed == name


@given(st.text() | st.text("ab/:.-=0139 x\n\u00e9").map(lambda tail: f"persistent://{tail}"))
@example("segment://a/b/c/0-f-1")
@example("topic://a/b/c/d")
@example("persistent://a/b/c-partition-")
def test_any_text_is_a_name_or_an_invalid_name(text: str) -> None:
    for parse in (parse_topic, parse_namespace, parse_tenant):
        outcome = _outcome(text, parse)
        assert not isinstance(outcome, str) or outcome.isprintable()


@given(topic_names())
def test_the_fast_path_and_the_explaining_path_agree(name: TopicName) -> None:
    """An upper-case domain takes the explaining path, whatever follows it."""
    shouted = name.text.replace(name.domain.value, name.domain.value.upper(), 1)
    plain, explained = _outcome(name.text), _outcome(shouted)

    assert isinstance(plain, str) == isinstance(explained, str)
    assert isinstance(plain, str) or plain == explained


def _outcome(text: str, parse: Callable[[str], object] = parse_topic) -> object:
    """Return the name, in parts, or the message of the refusal. A tenant counts as a part."""
    try:
        name = parse(text)
    except InvalidName as refusal:
        return str(refusal)
    return (name,) if isinstance(name, str) else name


# Units ----------------------------------------------------------------------------------------


units = (
    st.just(Unit.whole())
    | digits.map(Unit.partition)
    | st.integers(0, SEGMENT_ID_MAX).map(Unit.segment)
)


@given(units)
def test_a_unit_survives_its_text(unit: Unit) -> None:
    assert Unit.parse(unit.text) == unit


def test_the_text_of_units_never_changes() -> None:
    units = (Unit.whole(), Unit.partition(3), Unit.segment(17))

    assert [unit.text for unit in units] == ["", "p3", "s17"]
    assert [assignment_key("ab", unit) for unit in units] == ["ab/", "ab/p3", "ab/s17"]


@pytest.mark.parametrize(
    "text", ["p", "s", "x1", "p01", "p-1", "p+1", "p 1", "s\u0663", "3", f"p{10_000}", f"s{2**63}"]
)
def test_what_is_no_units_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidName, match="unit"):
        Unit.parse(text)


@pytest.mark.parametrize("number", [-1, PARTITIONS_PER_TOPIC_MAX])
def test_no_unit_is_made_of_an_impossible_partition(number: int) -> None:
    with pytest.raises(AssertionError):
        Unit.partition(number)


@pytest.mark.parametrize("segment_id", [-1, SEGMENT_ID_MAX + 1])
def test_no_unit_is_made_of_an_impossible_segment(segment_id: int) -> None:
    with pytest.raises(AssertionError):
        Unit.segment(segment_id)
