"""The examples of docs/scalable-client.md run, and the tests that it names exist."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.unit.client.st.fake_namespaces import Namespaces
from tests.unit.client.st.fake_server import FakeServer

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "scalable-client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DOCUMENTED_URL = "pulsar://127.0.0.1:6650"


async def test_every_example_runs_one_after_the_other(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(EXAMPLES) == 7
    Namespaces(server, has_all=True)
    for number, example in enumerate(EXAMPLES):
        source = example.replace(DOCUMENTED_URL, server.url)
        code = compile(source, f"example {number}", "exec")
        await asyncio.to_thread(exec, code, {"__name__": "__main__"})

    printed = capsys.readouterr().out
    assert "first customer-7" in printed
    assert "b'99'" in printed
    assert "topic://public/default/orders b'first'" in printed
    assert "Order(number=1" in printed
    assert "ReadingWithUnit(sensor='s1', value=20.5, unit='°C')" in printed


def test_the_tests_and_checks_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.partition("points and their tests")[2]))
    found = set()
    for folder in ("tests/unit/client/st", "tests/support/scalable_client", "tests/e2e/clients"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(re.findall(r"^(?:async )?def (\w+)\(", path.read_text(), re.MULTILINE))

    assert len(named) > 25
    assert named <= found, named - found
