"""Rows keep every value that a state can have."""

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.ids import ID_ENTROPY_BYTES, mint_id
from shards.domain.assignment import Assignment
from shards.domain.broker_session import BrokerSession, Endpoints
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.states import StateKind
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.rows import MAPPINGS, query_of, read_states, write_states
from tests.support.shards.world import MemoryView

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
minted = st.builds(
    mint_id,
    st.integers(0, SLOT_COUNT - 1),
    st.binary(min_size=ID_ENTROPY_BYTES, max_size=ID_ENTROPY_BYTES),
)
ids = st.one_of(minted, texts)
numbers = st.integers(0, 2**63 - 1)
properties = st.dictionaries(texts, texts, max_size=4).map(lambda each: tuple(sorted(each.items())))
lives = st.sampled_from(Life)
states = st.one_of(
    st.tuples(
        st.just(StateKind.TENANT), st.builds(Tenant, texts, texts, properties, numbers, lives)
    ),
    st.tuples(
        st.just(StateKind.NAMESPACE),
        st.builds(Namespace, texts, texts, texts, properties, numbers, lives),
    ),
    st.tuples(
        st.just(StateKind.TOPIC),
        st.builds(Topic, ids, texts, numbers, numbers, ids, numbers, properties),
    ),
    st.tuples(
        st.just(StateKind.ASSIGNMENT),
        st.builds(Assignment, minted, texts, texts, numbers, texts, st.one_of(st.just(""), ids)),
    ),
    st.tuples(
        st.just(StateKind.BROKER_SESSION),
        st.builds(
            BrokerSession,
            texts,
            texts,
            numbers,
            st.booleans(),
            st.builds(Endpoints, texts, texts, texts),
            numbers,
            texts,
            numbers,
            texts,
            numbers,
            st.booleans(),
            numbers,
            numbers,
            st.lists(numbers, max_size=5).map(tuple),
        ),
    ),
)


def key_of(state):
    match state:
        case Assignment():
            return f"{state.topic_id}/{state.unit}"
        case BrokerSession():
            return state.broker_id
        case _:
            return state.name


@given(states)
def test_what_is_written_is_what_is_read(kind_and_state):
    kind, state = kind_and_state
    key = key_of(state)
    view = MemoryView()

    write_states(view.reader(), kind, {key: state, f"{key} gone": None}, {})

    found = read_states(query_of(view.reader), kind, [key, f"{key} gone"])
    assert found == {key: state, f"{key} gone": None}
    view.close()


def test_an_id_takes_half_as_many_bytes_as_it_has_digits():
    topic_id, namespace_id = mint_id(1, bytes(range(10))), mint_id(2, bytes(10))
    topic = Topic(topic_id, "persistent://acme/orders/paid", 0, 1, namespace_id, 5, ())

    _, stored_topic_id, _, _, stored_namespace_id, *_ = MAPPINGS[StateKind.TOPIC].to_row("", topic)

    assert stored_topic_id == bytes.fromhex(topic_id)
    assert stored_namespace_id == bytes.fromhex(namespace_id)
