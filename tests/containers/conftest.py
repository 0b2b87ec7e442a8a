"""A cluster of the compose file for each tool that is installed, and its operator on this host."""

from __future__ import annotations

import pytest

from nextgen.runtime.security.client_token import use_token_file
from nextgen.runtime.security.process_tls import tls_of_files, use_tls
from nextgen.runtime.tls_settings import TlsFiles
from tests.containers.compose import Compose, tools


@pytest.fixture(scope="session", params=["docker compose", "docker-compose"])
def compose(request):
    installed = tools()
    assert installed, "no container tool is installed: see the README for what CI installs"
    tool = request.param.split()
    if tool not in installed:
        pytest.skip(f"{request.param} is not installed")
    project = Compose(tool, "nextgen-test")
    project.run("down", "--volumes", "--remove-orphans")
    project.run("build", timeout_s=900)
    project.up()
    yield project
    project.run("down", "--volumes", "--remove-orphans")


@pytest.fixture
def operator(compose, tmp_path):
    """The operator, as whom this process makes its calls."""
    found = compose.operator_into(tmp_path)
    use_tls(tls_of_files(TlsFiles(found.cert_file, found.key_file, found.ca_file)))
    use_token_file(found.token_file)
    yield found
    use_tls(None)
    use_token_file(None)
