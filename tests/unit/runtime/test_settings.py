"""Flags, environment and the sentences about what is wrong with them."""

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.settings import Address, Flag, Given, read_settings

FLAGS = (
    Flag("--node-id", "name"),
    Flag("--listen", "where"),
    Flag("--advertise", "where others connect", ""),
    Flag("--shards", "how many", "4"),
)


def read(*arguments, **environment):
    return read_settings("program", "what it does", FLAGS, arguments, environment)


def test_a_flag_wins_over_the_environment_and_that_over_the_default():
    given = read("--node-id=a", NEXTGEN_NODE_ID="b", NEXTGEN_LISTEN="h:1", NEXTGEN_SHARDS="7")

    assert given.identifier("--node-id") == "a"
    assert given.address("--listen") == Address("h", 1)
    assert given.number("--shards", least=1, most=9) == 7
    given.check()


def test_everything_that_is_missing_is_named_at_once_with_its_variable():
    with pytest.raises(RefusesToStart) as refusal:
        read("--node-id=")

    assert "--node-id (or NEXTGEN_NODE_ID) is missing" in str(refusal.value)
    assert "--listen (or NEXTGEN_LISTEN) is missing" in str(refusal.value)


def test_an_unknown_flag_or_an_abbreviation_ends_the_program():
    for argument in ("--nonsense=1", "--node=a"):
        with pytest.raises(SystemExit):
            read(argument)


def test_every_mistake_is_reported_not_only_the_first():
    given = read("--node-id=a b", "--listen=nowhere", "--shards=10")
    given.identifier("--node-id")
    given.address("--listen")
    given.number("--shards", least=1, most=9)

    with pytest.raises(RefusesToStart) as refusal:
        given.check()

    assert len(str(refusal.value).split("; ")) == 3


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("host:1", Address("host", 1)),
        ("[::1]:65535", Address("::1", 65_535)),
        ("10.0.0.1:80", Address("10.0.0.1", 80)),
    ],
)
def test_an_address_reads_and_prints_alike(text, address):
    given = Given({"--listen": text})

    assert given.address("--listen") == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["host", "host:", ":1", "host:0", "host:65536", "host:x", "h:\u0661"]
)
def test_what_is_no_address_is_a_mistake(text):
    given = Given({"--listen": text})

    given.address("--listen")

    assert len(given.mistakes) == 1


def test_a_wildcard_can_be_listened_on_but_not_advertised():
    given = read("--node-id=a", "--listen=0.0.0.0:1")
    given.advertised("--advertise", "--listen")
    assert "no process can connect" in given.mistakes[0]

    given = read("--node-id=a", "--listen=0.0.0.0:1", "--advertise=public:2")
    assert given.advertised("--advertise", "--listen") == Address("public", 2)
    given.check()


def test_a_list_of_addresses_needs_at_least_one():
    given = Given({"--managers": "a:1, b:2,", "--none": " , "})

    assert given.addresses("--managers") == (Address("a", 1), Address("b", 2))
    assert given.addresses("--none") == ()
    assert given.mistakes == ["--none has no address"]


def test_a_truth_is_true_or_false_and_anything_else_a_mistake():
    assert Given({"--is": "true"}).truth("--is") is True
    assert Given({"--is": "false"}).truth("--is") is False

    given = Given({"--is": "yes"})
    assert given.truth("--is") is False

    assert given.mistakes == ["--is is 'yes', it must be true or false"]
