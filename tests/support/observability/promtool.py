"""Prometheus' own checker. It comes with the Debian package ``prometheus``.

Without it the tests that need it are skipped with a reason; with ``PROMTOOL_REQUIRED=1``, which is
how CI runs them, it is installed, and a machine where that cannot be done fails.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEPLOYED = ROOT / "deploy"
ALERTS = DEPLOYED / "prometheus" / "alerts.yml"
DASHBOARDS = sorted((DEPLOYED / "grafana" / "dashboards").glob("*.json"))

_REQUIRED = "PROMTOOL_REQUIRED"
_TIMEOUT_S = 60
_INSTALL_TIMEOUT_S = 110
_METRIC = re.compile(r"\b(?:nextgen|process|python)_[a-z0-9_]+\b")
_VARIABLES = {"$__rate_interval": "5m", "$__interval": "1m", "$__range": "1h"}


@functools.cache
def promtool_path() -> str:
    """Return the path of promtool, or skip the calling test."""
    found = shutil.which("promtool")
    if found is None and os.environ.get(_REQUIRED):
        _install()
        found = shutil.which("promtool")
        assert found is not None, "the package prometheus has no promtool"
    if found is None:
        pytest.skip("promtool is not here: apt-get install prometheus")
    return found


def promtool(*arguments: str, cwd: Path, given: str | None = None) -> str:
    """Run promtool and return its output; fails with that output on an error."""
    done = subprocess.run(
        [promtool_path(), *arguments],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"promtool {' '.join(arguments)}: {said}"
    return said


def dashboard_expressions() -> Iterator[tuple[str, str]]:
    """Yield file and expression of each query of the dashboards, variables filled in."""
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                expression: str = target["expr"]
                for variable, value in _VARIABLES.items():
                    expression = expression.replace(variable, value)
                yield path.name, expression


def as_rules(expressions: Iterable[str]) -> str:
    """Return a file of rules that has each expression once. JSON is YAML."""
    rules = [
        {"record": f"checked:expression:{number}", "expr": expression}
        for number, expression in enumerate(expressions)
    ]
    group: dict[str, Any] = {"name": "dashboards", "rules": rules}
    return json.dumps({"groups": [group]})


def metrics_named_in(texts: Iterable[str]) -> set[str]:
    """Return the metrics that queries name, a histogram by its own name."""
    found = {name for text in texts for name in _METRIC.findall(text)}
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}


def _install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "--quiet"],
        ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "prometheus"],
    ):
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
