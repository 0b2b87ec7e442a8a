import inspect

import pytest

from nextgen.kernel import errors
from nextgen.kernel.errors import (
    DeadlineExceeded,
    Definite,
    Indefinite,
    InvalidRequest,
    JournalCorrupted,
    MetadataError,
    NotLeader,
    Overloaded,
    ProposalLost,
    Refused,
    RefusesToStart,
    SessionExpired,
    StaleShardMap,
    TransferFailed,
    Unavailable,
    WrongCluster,
)

ALL = {
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, MetadataError)
}
GROUPS = {MetadataError, Definite, Indefinite}

DEFINITE = {
    Refused, NotLeader, StaleShardMap, Unavailable, Overloaded, SessionExpired, InvalidRequest,
    TransferFailed, RefusesToStart, WrongCluster, JournalCorrupted,
}  # fmt: skip
INDEFINITE = {ProposalLost, DeadlineExceeded}


def test_every_error_is_either_definite_or_indefinite() -> None:
    for kind in ALL - {MetadataError}:
        assert issubclass(kind, Definite) != issubclass(kind, Indefinite), kind


@pytest.mark.parametrize("kind", sorted(DEFINITE, key=lambda kind: kind.__name__))
def test_what_did_not_happen_is_definite(kind: type[MetadataError]) -> None:
    assert issubclass(kind, Definite)


@pytest.mark.parametrize("kind", sorted(INDEFINITE, key=lambda kind: kind.__name__))
def test_what_may_have_happened_is_indefinite(kind: type[MetadataError]) -> None:
    assert issubclass(kind, Indefinite)


def test_every_error_has_a_reason_of_its_own() -> None:
    reasons = [kind.reason for kind in ALL - GROUPS]

    assert len(set(reasons)) == len(reasons)
    assert "UNKNOWN" not in reasons


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [kind.__name__ for kind in ALL if kind.__name__ not in errors.__doc__] == []


def test_not_leader_says_where_to_go() -> None:
    error = NotLeader(7, "shard-node-2")

    assert str(error) == "not the leader of group 7, try shard-node-2"
    assert (error.group_id, error.leader_hint) == (7, "shard-node-2")
    assert str(NotLeader(7)) == "not the leader of group 7, try any replica"


def test_refused_carries_its_code() -> None:
    error = Refused("NOT_FOUND", "no such topic")

    assert (error.code, str(error)) == ("NOT_FOUND", "no such topic")


def test_a_stale_shard_map_carries_the_version_that_holds() -> None:
    assert StaleShardMap("slot 5 is not here", 12).shard_map_version == 12
    assert StaleShardMap("slot 5 is not here").shard_map_version == 0


def test_a_process_in_the_wrong_cluster_refuses_to_start() -> None:
    assert issubclass(WrongCluster, RefusesToStart)
    assert issubclass(JournalCorrupted, RefusesToStart)
