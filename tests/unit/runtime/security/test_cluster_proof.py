"""Proofs of the cluster secret, without a connection."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.security.cluster_proof import (
    ClusterCredentials,
    Proof,
    credentials_in_use,
    credentials_of_environment,
    credentials_of_node,
    environment_of_child,
    use_credentials,
)

METHOD = "/nextgen.v1.ShardService/Exchange"
CHALLENGE = b"c" * 16
OURS = ClusterCredentials("blue", b"0123456789abcdef", Path("/secret"))


@pytest.fixture(autouse=True)
def _restored():
    before = credentials_in_use()
    yield
    use_credentials(before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.secret"
    path.touch(mode=0o600)
    path.write_bytes(OURS.secret)
    return path


def test_a_proof_is_right_for_its_method_with_its_challenge():
    checked = OURS.checked(METHOD, OURS.prove(METHOD, CHALLENGE))

    assert checked is not None
    assert checked.challenge == CHALLENGE


def test_no_two_proofs_are_alike():
    first, second = (OURS.checked(METHOD, OURS.prove(METHOD, CHALLENGE)) for _ in range(2))

    assert isinstance(first, Proof)
    assert first != second


@pytest.mark.parametrize(
    "other",
    [
        ClusterCredentials("blue", b"0123456789abcdeF", Path("/secret")),
        ClusterCredentials("green", OURS.secret, Path("/secret")),
    ],
    ids=["another secret", "another cluster"],
)
def test_a_proof_of_others_is_wrong(other: ClusterCredentials):
    assert OURS.checked(METHOD, other.prove(METHOD, CHALLENGE)) is None


def test_a_proof_of_another_method_is_wrong():
    proof = OURS.prove("/nextgen.v1.ShardService/GetNodeStatus", CHALLENGE)

    assert OURS.checked(METHOD, proof) is None


def test_a_proof_with_any_byte_changed_cut_off_or_added_is_wrong():
    proof = OURS.prove(METHOD, CHALLENGE)

    for place in range(len(proof)):
        changed = bytearray(proof)
        changed[place] ^= 1
        assert OURS.checked(METHOD, bytes(changed)) is None
        assert OURS.checked(METHOD, proof[:place]) is None
    assert OURS.checked(METHOD, proof + b"\0") is None


def test_a_cluster_id_cannot_borrow_from_the_methods_name():
    """What is hashed for one pair of cluster and method is hashed for no other pair."""
    mine = ClusterCredentials("blue", OURS.secret, OURS.file)
    longer = ClusterCredentials("blue/a", OURS.secret, OURS.file)

    assert longer.checked("/b", mine.prove("/a/b", CHALLENGE)) is None


def test_the_secret_is_not_in_what_is_printed():
    assert "0123456789abcdef" not in repr(OURS)


def test_a_node_without_a_secret_starts_with_a_warning():
    with capture_logs() as lines:
        assert credentials_of_node("blue", None) is None

    assert [line["log_level"] for line in lines] == ["warning"]
    assert credentials_in_use() is None


def test_a_node_with_a_secret_proves_its_calls_with_it(file: Path):
    with capture_logs() as lines:
        credentials = credentials_of_node("blue", file)

    assert lines == []
    assert credentials_in_use() == credentials == ClusterCredentials("blue", OURS.secret, file)


def test_the_environment_names_file_and_cluster(file: Path):
    environment = {"NEXTGEN_CLUSTER_SECRET_FILE": str(file), "NEXTGEN_CLUSTER_ID": "blue"}

    credentials = credentials_of_environment(environment)

    assert credentials == ClusterCredentials("blue", OURS.secret, file)
    assert credentials.environment() == environment
    assert credentials_of_environment({}) is None


def test_a_secret_in_the_environment_without_its_cluster_is_refused(file: Path):
    with pytest.raises(RefusesToStart, match="--cluster-id or NEXTGEN_CLUSTER_ID"):
        credentials_of_environment({"NEXTGEN_CLUSTER_SECRET_FILE": str(file)})


def test_a_child_process_is_given_the_credentials_in_use(file: Path):
    use_credentials(None)
    assert environment_of_child({"PATH": "/bin"}) == {"PATH": "/bin"}

    use_credentials(ClusterCredentials("blue", OURS.secret, file))
    inherited = environment_of_child({"PATH": "/bin", "NEXTGEN_CLUSTER_ID": "old"})

    assert inherited["PATH"] == "/bin"
    assert credentials_of_environment(inherited) == credentials_in_use()
