"""Rows keep every value that a state can have."""

from hypothesis import given
from hypothesis import strategies as st

from shards.domain.broker_session import BrokerSession, Endpoints
from shards.domain.life import Life
from shards.domain.namespace import Namespace
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.projections.evolution import StateKind
from shards.projections.rows import query_of, read_states, write_states
from tests.support.shard_world import MemoryView

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
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
        st.builds(Topic, texts, texts, numbers, numbers, texts, numbers, properties),
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
        ),
    ),
)


@given(states)
def test_what_is_written_is_what_is_read(kind_and_state):
    kind, state = kind_and_state
    key = state.broker_id if isinstance(state, BrokerSession) else state.name
    view = MemoryView()

    write_states(view.reader(), kind, {key: state, f"{key} gone": None})

    found = read_states(query_of(view.reader), kind, [key, f"{key} gone"])
    assert found == {key: state, f"{key} gone": None}
    view.close()
