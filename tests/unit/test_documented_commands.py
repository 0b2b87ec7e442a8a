"""Commands that documents name exist, with the options that they name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer.main

from nextgen.kernel.limits import cluster, scalable, shadow
from nextgen.main import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md"))),
    *(path for path in sorted((ROOT / "docs" / "flows").glob("*.md"))),
]
PIPELINES = "pipeline"
"""Its jobs parse their own options, in a process with Spark."""

COMMAND = typer.main.get_command(app)


def code_of(text: str) -> Iterator[str]:
    """Yield the lines of blocks and the spans of code in a document."""
    for block in re.findall(r"(?ms)^```\w*\n(.*?)^```$", text):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the words of each ``nextgen`` command in a document."""
    for code in code_of(text):
        if code.startswith("nextgen "):
            words = re.split(r"\s(?:#|…|\||&&|;)", code)[0]
            yield shlex.split(words.replace("'", ""))[1:]


def misnamed(words: list[str]) -> str:
    """Return the first word that is no command or option, "" if each is one."""
    command: click.Command = COMMAND
    while hasattr(command, "commands") and words:
        if words[0].startswith("-") and len(words) > 2:
            if words[0] not in {name for option in command.params for name in option.opts}:
                return words[0]
            words = words[2:]
            continue
        if words[0].startswith("-"):
            break
        if words[0] == PIPELINES and len(words) > 1:
            return ""
        found = command.commands.get(words[0])
        if found is None:
            return words[0]
        command, words = found, words[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    known |= {"--help", "-h"}
    named = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((name for name in named if name not in known), "")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_that_a_document_names_exist(document: Path) -> None:
    wrong = {
        " ".join(words): found
        for words in commands_of(document.read_text())
        if (found := misnamed(words))
    }

    assert wrong == {}


def test_a_command_or_option_that_does_not_exist_is_found() -> None:
    assert [misnamed(words) for words in commands_of("`nextgen topics moove x --to b`")] == [
        "moove"
    ]
    assert [misnamed(words) for words in commands_of("`nextgen lookup x --fresch`")] == ["--fresch"]
    assert [misnamed(words) for words in commands_of("`nextgen lookup x --fresh`")] == [""]


def test_limits_for_those_who_come_from_pulsar_admin_are_the_present_ones() -> None:
    text = (ROOT / "docs" / "coming-from-pulsar.md").read_text()

    named = re.findall(r"\| ([\d,]+) \(`(\w+)`\) \|", text)

    assert len(named) >= 6
    assert {name: int(number.replace(",", "")) for number, name in named} == {
        name: (vars(cluster) | vars(scalable) | vars(shadow))[name] for _, name in named
    }
