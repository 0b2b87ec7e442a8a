"""Flags, environment and the sentences about what is wrong with them."""

from pathlib import Path

import pytest

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.settings import (
    TLS_FLAGS,
    Address,
    Flag,
    Given,
    flags_of_tls,
    read_settings,
)
from nextgen.runtime.tls_settings import NO_TLS, TlsFiles, TlsSettings

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


SECURED = (
    *FLAGS,
    *(Flag("--http-listen", "metrics"), Flag("--pulsar-listen", "clients", "")),
    *(Flag("--pulsar-tls-listen", "clients", ""), *TLS_FLAGS),
)
FILES = ("--tls-cert-file=c", "--tls-key-file=k", "--tls-ca-file=a")


def secured(*arguments, listen="127.0.0.1:1", http="127.0.0.1:2"):
    arguments = ("--node-id=a", f"--listen={listen}", f"--http-listen={http}", *arguments)
    return read_settings("program", "what it does", SECURED, arguments, {})


def mistakes(given):
    given.tls("--pulsar-listen")
    return given.mistakes


def test_without_certificates_a_process_is_reached_from_its_own_machine_only():
    assert mistakes(secured(listen="[::1]:1", http="localhost:2")) == []
    for flag, given in (
        ("--listen", secured(listen="0.0.0.0:1")),
        ("--http-listen", secured(http="10.0.0.1:2")),
        ("--pulsar-listen", secured("--pulsar-listen=some.host:3")),
    ):
        assert len(mistakes(given)) == 1
        assert f"{flag} " in given.mistakes[0]
        assert "--insecure true" in given.mistakes[0]
        assert "--tls-cert-file" in given.mistakes[0]
    assert mistakes(secured("--insecure=true", listen="0.0.0.0:1", http="0.0.0.0:2")) == []


def test_with_certificates_all_but_a_plain_pulsar_port_may_be_reached_from_elsewhere():
    assert mistakes(secured(*FILES, listen="0.0.0.0:1", http="0.0.0.0:2")) == []
    plain = secured(*FILES, "--pulsar-listen=0.0.0.0:3")
    assert ["--pulsar-listen" in mistake for mistake in mistakes(plain)] == [True]


def test_certificates_are_given_whole_and_under_pulsars_names_too():
    given = secured("--tlsCertificateFilePath=c", "--tlsKeyFilePath=k", "--tlsTrustCertsFilePath=a")
    assert given.tls().nodes == TlsFiles(Path("c"), Path("k"), Path("a")) == given.tls().clients

    both = secured(*FILES, "--client-tls-cert-file=d", "--client-tls-key-file=l")
    assert "--client-tls-ca-file is missing" in mistakes(both)[0]
    assert "without --tls-cert-file" in mistakes(secured("--pulsar-tls-listen=127.0.0.1:3"))[0]
    assert "without --tls-cert-file" in mistakes(secured("--tls-require-client-cert=true"))[0]


def test_a_worker_is_given_the_same_certificates():
    settings = TlsSettings(
        TlsFiles(Path("c"), Path("k"), Path("a")), TlsFiles(Path("d"), Path("l"), Path("b")), True
    )
    flags = [f"{name}={value}" for name, value in flags_of_tls(settings).items()]

    assert secured(*flags, listen="0.0.0.0:1").tls() == settings
    assert secured(*[f"{n}={v}" for n, v in flags_of_tls(NO_TLS).items()]).tls() == NO_TLS


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
