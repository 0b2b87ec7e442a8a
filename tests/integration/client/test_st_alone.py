"""The wheel with the extra ``st`` only, in an environment of its own, without a network."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.unit.client.st.fake_server import FakeServer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
TOPIC = "topic://public/default/alone"

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
PROGRAM = f"""
import importlib.util
import sys
from dataclasses import dataclass

from nextgen.client import st

@dataclass
class Order:
    number: int

for schema in (st.schemas.avro(Order), st.schemas.json(Order)):
    topic = f"{TOPIC}-{{schema.kind}}"
    with st.BlockingPulsarClient(sys.argv[1]) as client:
        consumer = client.queue_consumer(
            topic, "s", schema=schema, initial_position=st.InitialPosition.EARLIEST
        )
        producer = client.create_producer(
            topic, schema=schema, compression=st.Compression.LZ4
        )
        producer.send(Order(3), key="k")
        print(consumer.receive(5_000).value)
print(*(name for name in ("grpc", "aiohttp", "typer", "pulsar") if importlib.util.find_spec(name)))
"""


async def run(*command: str | Path, cwd: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def built_wheel(folder: Path) -> Path:
    """Build the wheel from a copy: building leaves files beside the sources."""
    source = folder / "source"
    source.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["setuptools"]["packages"]["find"]["include"]:
        name = package.rstrip("*")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code, output = await run(sys.executable, "-c", BUILD, folder, cwd=source)
    assert code == 0, output
    (wheel,) = folder.glob("*.whl")
    return wheel


def needed(wheel: zipfile.ZipFile, extra: str) -> set[str]:
    """Return the distributions that the extra brings, those that they need included."""
    (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
    lines = message_from_bytes(wheel.read(name)).get_all("Requires-Dist", [])
    found: set[str] = set()
    waiting = [(line, extra) for line in lines]
    while waiting:
        line, wanted = waiting.pop()
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": wanted}):
            continue
        if requirement.name not in found:
            found.add(requirement.name)
            more = distribution(requirement.name).requires or []
            waiting += [(each, "") for each in more]
    return found


def files_of(name: str) -> Iterator[tuple[Path, Path]]:
    """Each file of an installed distribution: its place among packages, and where it lies."""
    for each in distribution(name).files or ():
        place = Path(each)
        if ".." not in place.parts and "__pycache__" not in place.parts:
            yield place, Path(str(each.locate()))


async def test_the_client_works_with_the_libraries_of_its_extra_alone(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(await built_wheel(tmp_path)) as wheel:
        wheel.extractall(packages)
        for name in needed(wheel, "st"):
            for place, origin in files_of(name):
                (packages / place).parent.mkdir(parents=True, exist_ok=True)
                (packages / place).symlink_to(origin)
    python = environment / "bin" / "python"

    async with FakeServer() as server:
        code, output = await run(python, "-I", "-c", PROGRAM, server.url, cwd=tmp_path)
    assert (code, output.splitlines()) == (0, ["Order(number=3)", "Order(number=3)", ""])

    code, output = await run(python, "-I", "-m", "nextgen", "--help", cwd=tmp_path)
    assert code == 1
    assert "pulsar-nextgen[cluster]" in output
