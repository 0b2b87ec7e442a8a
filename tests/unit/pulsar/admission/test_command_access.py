"""What each command of the protocol needs: all of them are in the table, or exempt in writing."""

import pytest

from nextgen.kernel.errors import Forbidden
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.kernel.routing.names import InvalidName
from nextgen.pulsar.admission import command_access
from nextgen.pulsar.admission.command_access import NOTHING_KEPT, UNASKED, Need, kept_by, needs_of
from nextgen.pulsar.frames import FIELD_OF_TYPE
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.authorization import AllowList

PAID = "persistent://acme/orders/paid"
TOPIC = Resource.topic(PAID)
NAMESPACE = Resource.namespace("acme/orders")


def command(kind, **fields):
    inner = FIELD_OF_TYPE[kind]
    made = BaseCommand(type=kind)
    for name, value in fields.items():
        setattr(getattr(made, inner), name, value)
    return made


@pytest.mark.parametrize("kind", BaseCommand.Type.values(), ids=BaseCommand.Type.Name)
def test_every_command_is_asked_for_or_exempt_with_a_reason(kind):
    is_asked = kind in command_access.NEEDS
    reason = UNASKED.get(kind)

    assert is_asked != bool(reason)


@pytest.mark.parametrize(
    ("given", "needs"),
    [
        (command(BaseCommand.LOOKUP, topic=PAID), [Need(Action.LOOK_UP, TOPIC)]),
        (command(BaseCommand.PARTITIONED_METADATA, topic=PAID), [Need(Action.LOOK_UP, TOPIC)]),
        (command(BaseCommand.GET_SCHEMA, topic=PAID), [Need(Action.READ, TOPIC)]),
        (command(BaseCommand.GET_OR_CREATE_SCHEMA, topic=PAID), [Need(Action.PRODUCE, TOPIC)]),
        (
            command(BaseCommand.PRODUCER, topic=PAID),
            [Need(Action.PRODUCE, TOPIC, is_kept=True)],
        ),
        (
            command(BaseCommand.PRODUCER, topic=PAID, initial_subscription_name="later"),
            [Need(Action.PRODUCE, TOPIC, is_kept=True), Need(Action.CONSUME, TOPIC, "later")],
        ),
        (
            command(BaseCommand.SUBSCRIBE, topic="acme/orders/paid", subscription="s"),
            [Need(Action.CONSUME, TOPIC, "s", is_kept=True)],
        ),
        (
            command(BaseCommand.SUBSCRIBE, topic=f"{PAID}-partition-3", subscription="s"),
            [Need(Action.CONSUME, Resource.topic(f"{PAID}-partition-3"), "s", is_kept=True)],
        ),
        (
            command(BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="acme/orders"),
            [Need(Action.LIST, NAMESPACE)],
        ),
        (
            command(BaseCommand.WATCH_TOPIC_LIST, namespace="acme/orders"),
            [Need(Action.LIST, NAMESPACE, is_kept=True)],
        ),
        (
            command(BaseCommand.WATCH_SCALABLE_TOPICS, namespace="acme/orders"),
            [Need(Action.LIST, NAMESPACE, is_kept=True)],
        ),
        (
            command(BaseCommand.SCALABLE_TOPIC_LOOKUP, topic=PAID),
            [Need(Action.LOOK_UP, TOPIC, is_kept=True)],
        ),
        (
            command(BaseCommand.SCALABLE_TOPIC_SUBSCRIBE, topic=PAID, subscription="s"),
            [Need(Action.CONSUME, TOPIC, "s", is_kept=True)],
        ),
    ],
    ids=lambda value: "" if isinstance(value, list) else BaseCommand.Type.Name(value.type),
)
def test_a_command_needs_an_action_on_what_it_names(given, needs):
    assert list(needs_of(given)) == needs


@pytest.mark.parametrize("kind", sorted(command_access.NEEDS), ids=BaseCommand.Type.Name)
def test_a_command_about_a_name_that_is_none_needs_nothing_that_could_be_given(kind):
    given = command(kind)
    inner = getattr(given, FIELD_OF_TYPE[kind])
    setattr(inner, "topic" if "topic" in inner.DESCRIPTOR.fields_by_name else "namespace", "a//b")

    with pytest.raises(InvalidName):
        needs_of(given)


def test_a_command_that_is_not_in_the_table_is_for_nobody():
    with pytest.raises(Forbidden, match="NEW_TXN is for nobody"):
        needs_of(command(BaseCommand.NEW_TXN))


def test_what_is_kept_is_released_once():
    allow = AllowList()
    access = allow.session(Principal("ada"), lambda _: None)
    subscribe = command(BaseCommand.SUBSCRIBE, topic=PAID, subscription="s")

    first, second = kept_by(access, subscribe), kept_by(access, subscribe)
    first.release()
    first.release()

    assert access.kept == {(Action.CONSUME, TOPIC, "s"): 1}
    second.release()
    assert not access.kept


def test_a_producer_keeps_its_topic_and_not_its_first_subscription():
    access = AllowList().session(Principal("ada"), lambda _: None)
    kept_by(access, command(BaseCommand.PRODUCER, topic=PAID, initial_subscription_name="s"))

    assert access.kept == {(Action.PRODUCE, TOPIC, ""): 1}


def test_without_authorisation_nothing_is_kept():
    kept = kept_by(None, command(BaseCommand.SUBSCRIBE, topic=PAID))

    assert kept is NOTHING_KEPT
    kept.release()
