"""Rules about the code itself that no off-the-shelf linter checks."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("nextgen", "shards", "cluster_manager", "discovery", "brokers", "pipelines")
ALSO_READ = ("benchmarks", "tests", "deploy", "scripts")
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
ROOM_MODULES_MAX = 15
ROOM_DOCSTRING_LINES_MAX = 3
BANNED_STEMS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "manager"}
LAYERED = (
    *("nextgen", "nextgen.cli", "nextgen.client", "nextgen.harness"),
    *("nextgen.kernel", "nextgen.replication", "shards", "cluster_manager"),
    *("discovery", "discovery.adapters", "discovery.service"),
    *("brokers", "brokers.adapters", "brokers.service", "pipelines"),
)
"""Packages of which every room and every module stands in a layer of an import contract."""

PACKAGE_DEPTH_MAX = 10
"""How deep import-linter looks for circles below a root package."""

GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")

TESTS_MODULE = re.compile(r"(?:from |import |\"-m\", \"|python -m )(tests\.[\w.]*\w)")

# In pieces, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
THIS_MACHINE = re.compile(
    r"(?<![\w.$}])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me/[a-z]|opt/wh" + r"eels|Us" + r"ers)(?:/|\b)"
)


STANDARD_TASK_TOOLS = {"timeout", "timeout_at", "wait_for", "TaskGroup"}
"""Names of asyncio that are wrong on a supported Python (ADR 0055): nextgen/tasks has them."""

USES_TASK_TOOLS = re.compile(rf"from\s+asyncio|asyncio\s*\.\s*({'|'.join(STANDARD_TASK_TOOLS)})\b")

HOLDS_FUNCTIONS = (ast.stmt, ast.ExceptHandler, ast.match_case)

NOT_SERVING = ("nextgen/cli/", "nextgen/harness/", "pipelines/")
"""Programs that an operator watches, and that end."""


def python_files(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if not path.name.endswith(GENERATED)]


def project_files() -> list[Path]:
    """Every text that is, or is about to be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


SOURCES = python_files(*PACKAGES)
ALL_CODE = python_files(*PACKAGES, *ALSO_READ)


def test_there_is_code_to_look_at() -> None:
    assert len(SOURCES) > 20
    assert len(project_files()) > 50


def test_no_file_or_function_is_too_long() -> None:
    long_files = [
        f"{name_of(path)}: {lines} lines"
        for path in SOURCES
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    ]
    long_functions = [
        f"{name_of(path)}:{node.lineno}: {node.name} is {lines} lines long"
        for path in SOURCES
        for node in _functions(path)
        if (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]

    assert long_files == [], "split these files"
    assert long_functions == []


def test_every_module_says_what_it_holds() -> None:
    silent = [
        name_of(path)
        for path in SOURCES
        if (text := path.read_text()) and not text.startswith('"""')
    ]

    assert silent == [], "these do not begin with a docstring"


def test_no_room_has_too_many_modules() -> None:
    rooms: dict[str, int] = {}
    for path in SOURCES:
        if path.name != "__init__.py":
            room = name_of(path.parent)
            rooms[room] = rooms.get(room, 0) + 1

    assert len(rooms) > 50
    too_many = {room: count for room, count in rooms.items() if count > ROOM_MODULES_MAX}
    assert too_many == {}, "divide this room by what its modules are for"


def test_no_folder_of_unit_tests_has_more_modules_than_a_room_may() -> None:
    folders = [path.parent for path in (ROOT / "tests" / "unit").rglob("test_*.py")]

    assert len(set(folders)) > 50
    too_many = {name_of(each) for each in folders if folders.count(each) > ROOM_MODULES_MAX}
    assert too_many == set(), "tests stand in the folder of the room that they test"


def test_no_folder_of_test_support_has_more_modules_than_a_room_may() -> None:
    folders = [path.parent for path in (ROOT / "tests" / "support").rglob("*.py")]

    assert len(set(folders)) > 10
    too_many = {name_of(each) for each in folders if folders.count(each) > ROOM_MODULES_MAX + 1}
    assert too_many == set(), "divide this folder by what its modules are for"


def test_every_module_of_the_tests_that_is_imported_or_started_exists() -> None:
    """Some are imported by a process that a test starts, and some only by nightly tests."""
    missing = {
        (name_of(path), name)
        for path in python_files("tests", "benchmarks")
        for name in TESTS_MODULE.findall(path.read_text())
        if not _is_module_or_package(name)
    }

    assert missing == set()


def _is_module_or_package(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def test_every_room_says_in_three_lines_what_lives_there_and_who_calls_it() -> None:
    rooms = {room for path in SOURCES for room in path.parents if ROOT in room.parents}
    without = [name_of(room) for room in sorted(rooms) if not _says_what_it_is(room)]

    assert without == []


def _says_what_it_is(room: Path) -> bool:
    path = room / "__init__.py"
    docstring = ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None
    lines = [line for line in (docstring or "").splitlines() if line.strip()]
    return 0 < len(lines) <= ROOM_DOCSTRING_LINES_MAX


def test_every_module_of_the_components_stands_in_a_layer() -> None:
    layers = _layers_by_container()

    without = {
        f"{package}.{child}"
        for package in LAYERED
        for child in _children(package)
        if child not in layers.get(package, ())
    }

    assert without == set(), "give it a layer in pyproject.toml"


def test_every_module_of_the_product_is_below_a_contract_on_layers() -> None:
    covered = tuple(
        f"{package}.{child}" for package, found in _layers_by_container().items() for child in found
    )
    modules = [name_of(path.with_suffix("")).replace("/", ".") for path in SOURCES]

    outside = {
        name
        for name in modules
        if name.count(".") and not name.endswith("__init__")
        if not any(name == each or name.startswith(f"{each}.") for each in covered)
    }

    assert len(modules) > 500
    assert outside == set(), "give it a layer in pyproject.toml"


def test_a_contract_on_the_rooms_of_a_package_names_all_of_them() -> None:
    lenient = [
        contract["name"]
        for contract in _import_contracts("layers")
        if set(contract.get("containers", ())) & set(LAYERED)
        and (not contract.get("exhaustive") or "exhaustive_ignores" in contract)
    ]

    assert lenient == []


def test_circles_are_refused_in_every_package_at_every_depth() -> None:
    (contract,) = _import_contracts("acyclic_siblings")
    depth = max(len(path.relative_to(ROOT).parts) for path in SOURCES)

    assert set(contract["ancestors"]) == set(PACKAGES)
    assert contract.keys() == {"name", "type", "ancestors"}, "no package may be left out"
    assert depth <= PACKAGE_DEPTH_MAX


def test_no_import_is_left_out_of_the_contracts_on_layers() -> None:
    assert [each["name"] for each in _import_contracts("layers") if "ignore_imports" in each] == []


def _import_contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [contract for contract in settings["contracts"] if contract["type"] == kind]


def _layers_by_container() -> dict[str, set[str]]:
    """Return the names that stand in a layer, by the package whose children they are."""
    layers: dict[str, set[str]] = {}
    for contract in _import_contracts("layers"):
        for container in contract.get("containers", ()):
            for layer in contract["layers"]:
                names = {name.strip(" ()") for name in re.split(r"[|:]", layer)}
                layers.setdefault(container, set()).update(names)
    return layers


def _children(package: str) -> set[str]:
    folder = ROOT / package.replace(".", "/")
    return {path.stem for path in folder.glob("*.py") if path.name != "__init__.py"} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }


def test_no_grab_bag_modules() -> None:
    assert [name_of(path) for path in ALL_CODE if path.stem in BANNED_STEMS] == []


def test_nothing_is_left_for_later() -> None:
    assert _lines_with(UNFINISHED, ALL_CODE) == []


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert _lines_with(THIS_MACHINE, project_files()) == []


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_names_exact_versions_and_hashes_and_no_host(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    allowed = re.compile(r"[a-z0-9-]+==[\w.]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?|#[^/:]*:?|")

    assert [line for line in lines if not allowed.fullmatch(line)] == []
    assert sum(" --hash" in line for line in lines) > sum("==" in line for line in lines)


def test_time_limits_and_groups_are_those_that_every_supported_python_has_right() -> None:
    used = [
        f"{name_of(path)}:{line}: {name}"
        for path in ALL_CODE
        if USES_TASK_TOOLS.search(path.read_text())  # To parse the others takes seconds.
        if path.parent != ROOT / "nextgen" / "tasks"
        for line, name in _names_of_asyncio(path)
        if name in STANDARD_TASK_TOOLS
    ]

    assert used == [], "use nextgen/tasks instead"


def test_background_tasks_are_begun_where_none_can_end_unnoticed() -> None:
    bare = [
        f"{name_of(path)}:{call.lineno}"
        for path in (*_those_with("create_task", SOURCES), *_those_with("ensure_future", SOURCES))
        if not name_of(path).startswith(NOT_SERVING) and path.parent != ROOT / "nextgen" / "tasks"
        for call in _calls(path)
        if _begins_bare_task(call)
    ]

    assert bare == [], "use keep, start or join of nextgen/tasks/background.py"


def test_each_kind_of_background_task_has_a_name_of_its_own() -> None:
    names: dict[str, set[str]] = {}
    for path in SOURCES:
        if "from nextgen.tasks.background import" not in path.read_text():
            continue
        for call in _calls(path):
            if isinstance(call.func, ast.Name) and call.func.id in ("keep", "start") and call.args:
                name = call.args[0]
                assert isinstance(name, ast.Constant), f"{name_of(path)}:{call.lineno}: no literal"
                names.setdefault(name.value, set()).add(name_of(path))

    assert {name: where for name, where in names.items() if len(where) > 1} == {}
    assert len(names) > 20


def _calls(path: Path) -> list[ast.Call]:
    return [node for node in _nodes(path) if isinstance(node, ast.Call)]


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions. No expression holds one, and most of a tree is expressions."""
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        left += [
            child for child in ast.iter_child_nodes(node) if isinstance(child, HOLDS_FUNCTIONS)
        ]


def _those_with(word: str, paths: list[Path]) -> list[Path]:
    """Return the files that have a word: to parse the others takes seconds."""
    return [path for path in paths if word in path.read_text()]


def _begins_bare_task(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    is_loop = owner == "asyncio" or owner.endswith(("loop", "get_running_loop()"))
    return is_loop and call.func.attr in ("create_task", "ensure_future")


def _names_of_asyncio(path: Path) -> list[tuple[int, str]]:
    """Return line and name of each ``asyncio.name`` and ``from asyncio import name``."""
    found = []
    for node in _nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "asyncio":
                found.append((node.lineno, node.attr))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "asyncio":
            found += [(node.lineno, alias.name) for alias in node.names]
    return found


def test_what_is_shipped_is_what_is_tested() -> None:
    shipped, tested = (_pins(lock) for lock in ("requirements.lock", "requirements-dev.lock"))

    assert shipped <= tested


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9-]+==[\w.]+", (ROOT / lock).read_text(), re.MULTILINE))


def _lines_with(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if pattern.search(text):
            found += [
                f"{name_of(path)}:{number}: {line.strip()}"
                for number, line in enumerate(text.splitlines(), start=1)
                if pattern.search(line)
            ]
    return found
