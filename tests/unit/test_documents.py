"""Documents that can go stale are checked against the tree."""

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROMISE_WORDS_MAX = 35
"""Of the sentence that an invariant begins with; conditions follow in their own sentences."""

MARKED_SLOW = r"@pytest\.mark\.slow[^\n]*\n(?:[@ )][^\n]*\n)*(?:async )?def (test_\w+)"
"""A test whose decorators, of one line or several, say that it is slow."""

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
    """Return number, promise and tests of each row."""
    rows = (ROOT / "docs" / "invariants.md").read_text().splitlines()
    cells = [row.strip("|").split("|") for row in rows if re.match(r"\| [A-Z]+\d", row)]
    assert {len(each) for each in cells} == {3}
    return [tuple(cell.strip() for cell in each) for each in cells]


def _names(tests):
    return re.split("<br>|, ", tests)


def _first_sentence(promise):
    return re.split(r"(?<=\.) ", re.sub(r"\]\([^)]*\)", "]", promise))[0]


def test_each_subject_of_operations_is_one_screen():
    subjects = re.split(r"(?m)^#{2,3} ", (ROOT / "docs" / "operations.md").read_text())[1:]

    assert len(subjects) > 40
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


def _architecture_map() -> str:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return text.split("## From each box to its folder")[1].split("\n## ")[0]
