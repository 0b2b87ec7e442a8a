"""The menu of the site has every document once, and nothing that is not there."""

from __future__ import annotations

import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GENERATED = "docs/generated/"
BUILD_TIMEOUT_S = 600
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def pages_of(nav: object) -> Iterator[str]:
    """Yield the paths in a menu, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from pages_of(entry)
    elif isinstance(nav, list):
        for entry in nav:
            yield from pages_of(entry)


def test_the_menu_of_the_site_has_every_document_once() -> None:
    documents = {
        str(path.relative_to(ROOT))
        for pattern in ("*.md", "docs/*.md", "docs/flows/*.md", "benchmarks/*.md")
        for path in ROOT.glob(pattern)
    }
    in_menu = Counter(page for page in pages_of(CONFIG["nav"]) if not page.startswith(GENERATED))

    assert documents - set(in_menu) == set()
    assert [page for page in in_menu if not (ROOT / page).is_file()] == []
    assert [page for page, count in in_menu.items() if count > 1] == []


def test_the_site_is_divided_by_what_a_reader_wants() -> None:
    assert [*CONFIG["nav"][0], *CONFIG["nav"][1], *CONFIG["nav"][2], *CONFIG["nav"][3]] == [
        *("Tutorial", "How-to", "Reference", "Explanation")
    ]
    assert CONFIG["strict"] is True


def test_what_builds_the_site_is_locked_and_not_installed_for_others() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    locked = (ROOT / "requirements-docs.lock").read_text()

    assert "mkdocs-material==" in locked
    assert not any(each.startswith("mkdocs") for each in extras["dev"])
    assert "mkdocs" not in (ROOT / "requirements-dev.lock").read_text()


@pytest.mark.slow
@pytest.mark.timeout(BUILD_TIMEOUT_S)
def test_the_site_builds_without_a_dead_link(tmp_path: Path) -> None:
    python = ROOT / ".venv-docs" / "bin" / "python"
    if not python.exists():
        pytest.skip("the generator is not installed: `make docs` installs it")

    built = subprocess.run(
        [python, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stderr
    commands = (tmp_path / "docs" / "generated" / "commands.html").read_text()
    assert all(f'id="nextgen-{each}"' in commands for each in ("up", "topics-list", "events"))
    assert "rpc LookupStream" in _text(tmp_path / "docs" / "generated" / "grpc.html")
    assert "/admin/v2/tenants/{tenant}" in _text(tmp_path / "docs" / "generated" / "rest.html")


def _text(page: Path) -> str:
    """Return the text of a page without its tags."""
    from html.parser import HTMLParser

    words: list[str] = []
    parser = HTMLParser()
    parser.handle_data = words.append  # type: ignore[method-assign]
    parser.feed(page.read_text())
    return "".join(words)
