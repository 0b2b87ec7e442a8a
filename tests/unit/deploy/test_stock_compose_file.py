"""The compose file with stock brokers: its processes accept their flags, and these fit together.

That its images exist and start is seen only where an engine pulls them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import brokers.config
import cluster_manager.config
import discovery.config
import shards.config

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "compose.stock.yaml"
TEXT = FILE.read_text()
SERVICES: dict[str, Any] = yaml.safe_load(TEXT)["services"]
VOLUMES: dict[str, Any] = yaml.safe_load(TEXT)["volumes"]
STOCK = [name for name in SERVICES if name.startswith("stock-")]
PARSERS: dict[str, Callable[[list[str], dict[str, str]], object]] = {
    "brokers": brokers.config.parse_config,
    "cluster_manager": cluster_manager.config.parse_config,
    "discovery": discovery.config.parse_config,
    "shards": shards.config.parse_config,
}
NODES = [name for name, each in SERVICES.items() if each.get("command", [""])[0] in PARSERS]
PLUGIN = ROOT / "integrations" / "pulsar-load-manager"


def mounts_of(name: str) -> dict[str, str]:
    """Return where each volume of a service is mounted."""
    mounts = [each for each in SERVICES[name]["volumes"] if isinstance(each, str)]
    return dict(each.split(":", 1) for each in mounts)


@pytest.mark.parametrize("name", NODES)
def test_a_process_takes_its_flags(name: str) -> None:
    module, *flags = SERVICES[name]["command"]

    PARSERS[module](flags, SERVICES[name]["environment"])

    assert SERVICES[name]["environment"]["NEXTGEN_CLUSTER_SECRET_FILE"].startswith("/certs/")
    assert mounts_of(name)["secret"] == "/certs:ro"


@pytest.mark.parametrize("name", ["zookeeper", "bookie"])
def test_a_volume_of_pulsars_covers_a_folder_that_its_image_lets_group_0_write(name: str) -> None:
    assert mounts_of(name) == {name: "/pulsar/data"}
    assert SERVICES[name]["user"].endswith(":0")


def test_there_are_three_stock_brokers_and_one_process_of_each_of_our_kinds() -> None:
    assert len(STOCK) == 3
    assert sorted(SERVICES[name]["command"][0] for name in NODES) == [
        *("brokers", "brokers", "brokers"),
        *("cluster_manager", "discovery", "shards"),
    ]


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_broker_and_its_sidecar_share_a_socket_as_one_user(name: str) -> None:
    sidecar = name.replace("stock", "sidecar")
    volume = f"{name}-socket"
    told = {flag.partition("=")[0]: flag.partition("=")[2] for flag in SERVICES[sidecar]["command"]}

    assert told["--node-id"] == name
    assert told["--sidecar"] == SERVICES[name]["environment"]["PULSAR_PREFIX_nextgenSidecarSocket"]
    folder = str(Path(told["--sidecar"]).parent)
    assert mounts_of(name)[volume] == mounts_of(sidecar)[volume] == folder
    assert [
        each for each in SERVICES if "volumes" in SERVICES[each] and volume in mounts_of(each)
    ] == [
        name,
        sidecar,
    ]
    users = {SERVICES[each]["user"].partition(":")[0] for each in (name, sidecar)}
    assert users == {re.search(r"uid=(\d+)", VOLUMES[volume]["driver_opts"]["o"])[1]}  # type: ignore[index]


@pytest.mark.parametrize("name", STOCK)
def test_a_stock_broker_has_the_plug_in_of_this_release_and_its_settings(name: str) -> None:
    service = SERVICES[name]
    (plugin,) = (each for each in service["volumes"] if isinstance(each, dict))
    pom = {
        each.tag.rpartition("}")[2]: each.text for each in ET.parse(PLUGIN / "pom.xml").getroot()
    }

    jar = f"{pom['artifactId']}-{pom['version']}.jar"
    assert (FILE.parent / plugin["source"]).resolve() == PLUGIN / "target" / jar
    assert plugin["target"].startswith("/pulsar/lib/")
    assert plugin["bind"] == {"create_host_path": False}
    manager = Path(*service["environment"]["loadManagerClassName"].split("."))
    assert (PLUGIN / "src" / "main" / "java" / manager).with_suffix(".java").exists()
    assert f"pulsar:{pulsar_version()}" in service["image"]


def pulsar_version() -> str:
    """Return the release of Pulsar that the plug-in is for."""
    found = re.search(r"<pulsar.version>([^<]+)<", (PLUGIN / "pom.xml").read_text())
    assert found is not None
    return found[1]


def test_no_port_is_published_beyond_this_machine_and_no_container_has_privileges() -> None:
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"].startswith("10001:"), name
    published = [port for each in SERVICES.values() for port in each.get("ports", ())]
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_the_tool_takes_the_file() -> None:
    tool = next((each for each in (["docker", "compose"], ["docker-compose"]) if _runs(each)), None)
    if tool is None:
        pytest.skip("docker compose and docker-compose not found")
    command = [*tool, "--file", str(FILE), "config", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr


def _runs(tool: list[str]) -> bool:
    if shutil.which(tool[0]) is None:
        return False
    return not subprocess.run(
        [*tool, "version"], capture_output=True, timeout=60, check=False
    ).returncode
