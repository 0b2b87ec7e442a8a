"""Where the command line finds the cluster secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nextgen.cli.console.options import endpoints_of
from nextgen.cli.local.cluster_state import write_state
from nextgen.cli.local.plan import MINIMAL, SECRET_FILE, ClusterPlan, make_plan
from nextgen.kernel.errors import RefusesToStart
from nextgen.main import app
from nextgen.runtime.security.cluster_proof import (
    ClusterCredentials,
    credentials_in_use,
    use_credentials,
)
from nextgen.runtime.security.cluster_secret import make_cluster_secret

ELSEWHERE = "10.0.0.1:7000"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch):
    for name in ("NEXTGEN_CLUSTER_SECRET_FILE", "NEXTGEN_CLUSTER_ID"):
        # What a command sets is taken away again with what was there before.
        monkeypatch.setenv(name, "")
    before = credentials_in_use()
    yield
    use_credentials(before)


@pytest.fixture
def local(tmp_path: Path) -> ClusterPlan:
    """A local cluster that runs, as its files say."""
    plan = make_plan(MINIMAL, cluster_id="mine")
    plan.save(tmp_path)
    make_cluster_secret(tmp_path / SECRET_FILE)
    write_state(tmp_path, {})
    return plan


def test_the_local_cluster_has_its_secret_in_its_data_directory(local: ClusterPlan, tmp_path: Path):
    endpoints_of(None, tmp_path)

    found = credentials_in_use()
    assert found is not None
    assert found == local.credentials(tmp_path)
    assert (found.cluster_id, found.file) == ("mine", tmp_path / SECRET_FILE)


def test_the_local_cluster_is_known_by_its_address_too(
    local: ClusterPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEXTGEN_CLUSTER_SECRET_FILE", "/of/another/cluster")

    assert endpoints_of(f"{ELSEWHERE},{local.discovery_endpoints[0]}", tmp_path)

    assert credentials_in_use() == local.credentials(tmp_path)


def test_the_secret_of_another_cluster_comes_from_the_environment(
    local: ClusterPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "other"
    make_cluster_secret(file)
    monkeypatch.setenv("NEXTGEN_CLUSTER_SECRET_FILE", str(file))
    monkeypatch.setenv("NEXTGEN_CLUSTER_ID", "other")

    endpoints_of(ELSEWHERE, tmp_path)

    assert credentials_in_use() == ClusterCredentials.load("other", file)


def test_without_a_secret_nothing_is_proven(tmp_path: Path):
    use_credentials(ClusterCredentials("before", b"", Path()))

    endpoints_of(ELSEWHERE, tmp_path)

    assert credentials_in_use() is None


def test_a_cluster_of_an_earlier_release_has_none(local: ClusterPlan, tmp_path: Path):
    (tmp_path / SECRET_FILE).unlink()

    endpoints_of(None, tmp_path)

    assert credentials_in_use() is None


def test_a_secret_without_the_clusters_id_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEXTGEN_CLUSTER_SECRET_FILE", str(tmp_path))

    with pytest.raises(RefusesToStart, match="--cluster-id"):
        endpoints_of(ELSEWHERE, tmp_path)


def test_options_of_the_command_line_are_for_what_it_starts_too(tmp_path: Path):
    arguments = ["--cluster-secret-file", str(tmp_path / "s"), "--cluster-id", "blue"]

    CliRunner().invoke(app, [*arguments, "down", "--data-dir", str(tmp_path)])

    assert os.environ["NEXTGEN_CLUSTER_SECRET_FILE"] == str(tmp_path / "s")
    assert os.environ["NEXTGEN_CLUSTER_ID"] == "blue"
