"""Compiles once what each of several workers imports.

In a new clone nothing is compiled. The workers of pytest-xdist all import the same modules, in the
same order and at the same time, and each would compile all of them: half a minute of processor time
for each worker. So each compiles its share of the sources first, and then imports the modules of
tests from a place of its own on. When it comes to another worker's, that one has compiled them.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

SOURCES = (
    *("nextgen", "shards", "cluster_manager", "discovery", "brokers", "pipelines", "protos"),
    "tests/support",
)


def import_with_others(config: pytest.Config) -> None:
    """Import the modules that ``config`` collects. Does nothing where there is one process only.

    A module that cannot be imported is left to the collection, which reports it.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    root = config.rootpath
    sources = sorted(path for tree in SOURCES for path in (root / tree).rglob("*.py"))
    for path in sources[number::count]:
        compileall.compile_file(path, quiet=2)
    modules = collected_modules(config)
    first = len(modules) * number // count
    for path in modules[first:] + modules[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            importlib.import_module(name)


def collected_modules(config: pytest.Config) -> Sequence[Path]:
    """Return the files of tests in the folders and files that are named, without ignored ones."""
    invoked = config.invocation_params.dir
    ignored = [(invoked / each).resolve() for each in config.getoption("ignore") or ()]
    named = [(invoked / each.partition("::")[0]).resolve() for each in config.args]
    files = {
        file
        for path in named
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
        if not any(file.is_relative_to(each) for each in ignored)
    }
    return sorted(files)
