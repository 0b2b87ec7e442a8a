"""Collects the pages of the site from the repository, for ``mkdocs build``.

Pages stand where they stand in the repository, so that a link that is right there is right here.
Files that pages link to come along as they are. What is generated from code has the folder
``docs/generated``, which no repository has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import generated_pages  # noqa: E402

DECISIONS = "docs/generated/decisions.md"
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s#]*)(#[^()\s]*)?\)")
_FENCED = re.compile(r"(?ms)^```.*?^```$")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Have headings get the anchors that the repository's own viewer gives them."""
    config.mdx_configs["toc"] = {"permalink": True, "slugify": slugify(case="lower")}
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and what they link to."""
    pages = [*pages_of(config.nav), *sorted((ROOT / "docs" / "adr").glob("*.md"))]
    for name, text in generated_pages.all_pages().items():
        files.append(File.generated(config, f"docs/generated/{name}.md", content=text))
    linked: set[Path] = set()
    for path in pages:
        is_decision = path.parent.name == "adr"
        # Decisions are reached from their list: one line each in the menu would drown the rest.
        level = InclusionLevel.NOT_IN_NAV if is_decision else InclusionLevel.INCLUDED
        files.append(_file(path, config, level))
        linked.update(_linked_files(path))
    for path in sorted(linked - set(pages)):
        files.append(_file(path, config, InclusionLevel.INCLUDED))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links to folders lead to their list of pages."""
    source = ROOT / page.file.src_uri

    def replaced(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if not target or ":" in target or not (source.parent / target).is_dir():
            return found[0]
        if (source.parent / target).resolve() == ROOT / "docs" / "adr":
            up = "../" * page.file.src_uri.count("/")
            return f"{text}({up}{DECISIONS}{anchor})"
        return text.strip("[]")

    return _outside_blocks(markdown, replaced)


def pages_of(nav: object) -> Iterator[Path]:
    """Yield the repository's files in a ``nav``, in order."""
    if isinstance(nav, str):
        if not nav.startswith("docs/generated/"):
            yield ROOT / nav
    elif isinstance(nav, dict):
        for entry in nav.values():
            yield from pages_of(entry)
    elif isinstance(nav, Iterable):
        for entry in nav:
            yield from pages_of(entry)


def _linked_files(path: Path) -> Iterator[Path]:
    """Yield the files that a page links to and that are no pages."""
    for _, target, _ in _LINK.findall(_FENCED.sub("", path.read_text())):
        linked = (path.parent / target).resolve()
        if target and ":" not in target and linked.is_file() and linked.suffix != ".md":
            yield linked


def _file(path: Path, config: MkDocsConfig, level: InclusionLevel) -> File:
    uri = path.relative_to(ROOT).as_posix()
    return File.generated(config, uri, abs_src_path=str(path), inclusion=level)


def _outside_blocks(markdown: str, replaced: object) -> str:
    parts, end = [], 0
    for block in _FENCED.finditer(markdown):
        parts += [_LINK.sub(replaced, markdown[end : block.start()]), block[0]]  # type: ignore[call-overload]
        end = block.end()
    return "".join([*parts, _LINK.sub(replaced, markdown[end:])])  # type: ignore[call-overload]
