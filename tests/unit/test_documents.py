"""Documents that can go stale are checked against the tree."""

import re
import textwrap
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROMISE_WORDS_MAX = 35
"""Of the sentence that an invariant begins with; conditions follow in their own sentences."""

MARKED_SLOW = r"@pytest\.mark\.slow[^\n]*\n(?:[@ )][^\n]*\n)*(?:async )?def (test_\w+)"
"""A test whose decorators, of one line or several, say that it is slow."""

CLASS_NAME = r"\b(?:[A-Z][a-z]+){2,}\b"

PORTS_OF_BROKERS = "brokers/ports"
"""The one part that no row of the map names: no box of the pictures is an interface."""

SCREEN_LINES_MAX = 40
SCREEN_COLUMNS = 120


def _tests_by_name() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^ *(?:async def|def|class) (\w+)", path.read_text(), re.MULTILINE)
    }


def _slow_tests() -> set[str]:
    """Return the tests that `make test` leaves out, all cases of them."""
    names = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        if "pytest.mark.slow" in text:
            names |= set(re.findall(MARKED_SLOW, text))
            if re.search(r"^pytestmark = .*mark\.slow", text, re.MULTILINE):
                names |= set(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))
    return names


def test_every_test_that_the_invariants_name_exists():
    named = {name.strip("`") for _, _, tests in _invariants() for name in _names(tests)}

    assert sorted(named - _tests_by_name()) == []


def test_every_invariant_is_guarded_by_a_test_of_each_run():
    slow = _slow_tests()

    unguarded = [
        number
        for number, _, tests in _invariants()
        if {name.strip("`") for name in _names(tests)} <= slow
    ]

    assert slow
    assert unguarded == []


def test_invariants_are_numbered_once():
    numbers = [number for number, _, _ in _invariants()]

    assert len(numbers) > 200
    assert len(numbers) == len(set(numbers))


def test_every_invariant_is_one_sentence_and_names_its_tests():
    unreadable = [
        number
        for number, promise, tests in _invariants()
        if not promise.endswith((".", ")."))
        or len(_first_sentence(promise).split()) > PROMISE_WORDS_MAX
        or not all(re.fullmatch(r"`\w+`", name) for name in _names(tests))
    ]

    assert unreadable == []


def _invariants():
    """Return number, promise with its conditions, and tests of each row."""
    text = (ROOT / "docs" / "invariants.md").read_text()
    conditions = dict(re.findall(r"(?m)^- \*\*([A-Z]+\d+)\*\* (.*)$", text))
    cells = [
        row.strip("|").split("|") for row in text.splitlines() if re.match(r"\| [A-Z]+\d", row)
    ]
    assert {len(each) for each in cells} == {3}
    rows = []
    for number, promise, tests in (map(str.strip, each) for each in cells):
        condition, _, further = conditions.pop(number, "").partition("Tests: ")
        further_tests = [name for name in further.removesuffix(".").split(", ") if name]
        rows.append(
            (number, f"{promise} {condition}".strip(), "<br>".join([tests, *further_tests]))
        )
    assert conditions == {}, "conditions without a row"
    return rows


def _names(tests):
    return re.split("<br>|, ", tests)


def _first_sentence(promise):
    return re.split(r"(?<=\.) ", re.sub(r"\]\([^)]*\)", "]", promise))[0]


def test_each_subject_for_operators_is_one_screen():
    subjects = [
        subject
        for page in ("operations.md", "reference.md", "chaos.md")
        for subject in re.split(r"(?m)^#{2,3} ", (ROOT / "docs" / page).read_text())[1:]
    ]

    assert len(subjects) > 70
    too_long = {
        subject.splitlines()[0]: lines
        for subject in subjects
        if (lines := _lines_on_screen(subject)) > SCREEN_LINES_MAX
    }
    assert too_long == {}


def _lines_on_screen(text):
    """Return how many lines ``text`` takes once paragraphs are wrapped; addresses do not count."""
    prose, *code = re.split(r"(?ms)^```.*?^```$", text), *re.findall(r"(?ms)^```.*?^```$", text)
    shown = re.sub(r"\]\([^)]*\)", "]", "".join(prose))
    blocks = re.split(r"\n(?=\n|\||- |\d\. )|(?<=\|)\n", shown)
    wrapped = sum(max(1, len(textwrap.wrap(block, SCREEN_COLUMNS))) for block in blocks)
    return wrapped + sum(len(block.splitlines()) for block in code)


def test_links_lead_to_headings():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]

    dead = [
        f"{document.name}: {target}#{anchor}"
        for document in documents
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text())
        if anchor not in _anchors(document.parent / target if target else document)
    ]

    assert dead == []


def _anchors(document):
    text = document.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_between_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]

    dead = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]

    assert dead == []


def test_the_map_of_the_architecture_names_every_room_of_shards_and_replication():
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", _architecture_map()))
    rooms = {
        str(path.parent.relative_to(ROOT))
        for parent in ("shards", "nextgen/replication")
        for path in (ROOT / parent).glob("*/__init__.py")
    }

    assert len(rooms) > 15
    assert sorted(rooms - named) == []
    assert [name for name in sorted(named) if not (ROOT / name / "__init__.py").exists()] == []


def test_what_the_map_of_the_architecture_says_to_open_first_is_in_that_row():
    lost = []
    for row in _architecture_map().splitlines():
        folders = re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", row)
        for name in re.findall(r"`([a-z_/]+\.py)`", row):
            if not any(
                (ROOT / folder / name).exists() or (ROOT / name).exists() for folder in folders
            ):
                lost.append(name)

    assert lost == []


def test_each_row_of_the_map_names_a_folder():
    rows = _map_rows()

    assert len(rows) > 20
    assert [boxes for boxes, folders, _ in rows if not _named_folders(folders)] == []


def test_each_class_in_a_box_of_the_map_is_defined_in_a_folder_of_its_row():
    undefined = [
        name
        for boxes, folders, _ in _map_rows()
        for name in re.findall(CLASS_NAME, boxes)
        if not any(_defines(ROOT / folder, name) for folder in _named_folders(folders))
    ]

    assert undefined == []


def test_each_class_in_the_pictures_of_the_architecture_has_its_row_in_the_map():
    pictures = "".join(re.findall(r"(?ms)^```$(.*?)^```$", _pictures()))
    drawn = set(re.findall(CLASS_NAME, pictures))
    mapped = {name for boxes, _, _ in _map_rows() for name in re.findall(CLASS_NAME, boxes)}

    assert len(drawn) > 3
    assert sorted(drawn - mapped) == []


def test_the_map_names_every_part_of_the_components():
    """Each folder that stands right below a component, or a room in it."""
    named = {folder for _, folders, _ in _map_rows() for folder in _named_folders(folders)}
    parts = {
        f"{component}/{path.parent.name}"
        for component in ("discovery", "brokers", "cluster_manager", "nextgen/client")
        for path in (ROOT / component).glob("*/__init__.py")
    }

    missing = {part for part in parts if not any(_is_in(folder, part) for folder in named)}
    assert missing == {PORTS_OF_BROKERS}


def test_the_import_directions_of_the_architecture_are_those_that_are_checked():
    said = _architecture().split("## Folders and import directions")[1].split("```")[1]
    written = [re.split(" {2,}", line)[0] for line in said.strip().splitlines()]
    layers = _contract("Layers point downwards and siblings do not meet")["layers"]

    assert written == [layer for layer in layers if layer != "nextgen.__main__"]


def test_the_order_of_the_rooms_of_shards_is_the_one_that_is_checked():
    (said,) = re.findall(r"Rooms of `shards`: `([^`]+)`", _architecture())
    layers = _contract("Rooms of shards point downwards")["layers"]

    assert said.split(" → ") == [layer.replace(" | ", ", ") for layer in layers]


def _is_in(folder: str, part: str) -> bool:
    return folder == part or folder.startswith(f"{part}/") or part.startswith(f"{folder}/")


def _named_folders(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", cell)


def _defines(folder: Path, name: str) -> bool:
    defined = re.compile(rf"^class {name}\b", re.MULTILINE)
    return any(defined.search(path.read_text()) for path in folder.rglob("*.py"))


def _map_rows() -> list[tuple[str, str, str]]:
    """Return box, folders and what to open first of each row of the map."""
    lines = [line for line in _architecture_map().splitlines() if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]
    assert {len(each) for each in cells} == {3}
    return cells


def _contract(name: str):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["name"] == name)
    return contract


def _architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text()


def _pictures() -> str:
    return _architecture().split("## From each box to its folder")[0]


def _architecture_map() -> str:
    return _architecture().split("## From each box to its folder")[1].split("\n## ")[0]
