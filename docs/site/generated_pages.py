"""The reference pages that come from code: commands, REST, gRPC, and the list of decisions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

import typer.main

from discovery.adapters.administration.catalogue import AdminServices, all_routes
from discovery.adapters.administration.clusters import LocalCluster
from discovery.adapters.rest.openapi import openapi_document
from nextgen.main import program

ROOT = Path(__file__).parents[2]
PROTOS = ROOT / "protos" / "nextgen" / "v1"
WIDTH = 100
"""Columns of the program whose help is read."""


def all_pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {
        "commands": commands_page(),
        "rest": rest_page(),
        "grpc": grpc_page(),
        "decisions": decisions_page(),
    }


def commands_page() -> str:
    """Return every command with its arguments and options, as ``--help`` shows them."""
    root = typer.main.get_command(program(columns=WIDTH))
    lines = [
        "# Commands",
        "",
        f"{_cell(root.help or '')} Every command takes `--help`.",
        "",
        f"{_cell(root.epilog or '')}",
        "",
        *_options_table(root),
    ]
    for words, command in _commands(root, ("nextgen",)):
        lines += ["", f"## {' '.join(words)}", "", *_paragraphs(command.help or "")]
        lines += ["", *_options_table(command)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, (*words, name))
        elif not command.hidden:
            yield (*words, name), command


def _options_table(command: Any) -> list[str]:
    context = command.context_class(command)
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    rows = [_option_row(each, context) for each in shown]
    if not rows:
        return []
    return ["| option | value | default | meaning |", "|---|---|---|---|", *rows]


def _option_row(option: Any, context: Any) -> str:
    is_argument = option.param_type_name == "argument"
    names = [option.name.upper()] if is_argument else [*option.opts, *option.secondary_opts]
    is_flag = getattr(option, "is_flag", False)
    value = "" if is_flag else (option.metavar or option.display_type(context).strip("<>"))
    default = option.default
    is_shown = not (default is None or default == () or callable(default) or is_flag)
    variable = f" Environment: `{option.envvar}`." if getattr(option, "envvar", None) else ""
    cells = (
        " ".join(f"`{each}`" for each in names) + (" (required)" if option.required else ""),
        f"`{_cell(value)}`" if value else "",
        f"`{_cell(str(getattr(default, 'value', default)))}`" if is_shown else "",
        _cell(option.help or "") + variable,
    )
    return f"| {' | '.join(cells)} |"


def rest_page() -> str:
    """Return all calls of the Admin REST, grouped by resource, from the OpenAPI document."""
    # The routes are only looked at: nothing of them is called.
    services: dict[str, Any] = dict.fromkeys(each.name for each in fields(AdminServices))
    routes = all_routes(AdminServices(**services | {"local": LocalCluster("local", "", "")}))
    document = json.loads(openapi_document(routes).body or b"")
    calls = sorted(
        (operation["tags"][0], path, method.upper(), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    lines = ["# Admin REST, call by call", "", document["info"]["description"]]
    lines += [f"Any discovery node serves this as `/openapi.json`. {len(calls)} calls."]
    for tag, of_tag in groupby(calls, key=lambda call: call[0]):
        lines += ["", f"## {tag}", "", "| call | what | query | body | answers |"]
        lines += ["|---|---|---|---|---|", *(_call_row(*call[1:]) for call in of_tag)]
    return "\n".join(lines) + "\n"


def _call_row(path: str, method: str, operation: Mapping[str, Any]) -> str:
    query = [each["name"] for each in operation["parameters"] if each["in"] == "query"]
    body = sorted(operation.get("requestBody", {}).get("content", {}))
    answers = [status for status in operation["responses"] if not status.startswith("5")]
    cells = (
        f"`{method} {path}`",
        _cell(operation["summary"]),
        " ".join(f"`{each}`" for each in query),
        " ".join(f"`{each}`" for each in body),
        " ".join(sorted(answers)),
    )
    return f"| {' | '.join(cells)} |"


def grpc_page() -> str:
    """Return every service and message of the contracts, with the comments of the files."""
    lines = ["# gRPC", "", "The contracts in `protos/nextgen/v1`, with their comments."]
    for path in sorted(PROTOS.glob("*.proto"), key=lambda each: (not _has_service(each), each)):
        text = path.read_text()
        lines += ["", f"## {path.name}", "", *_paragraphs(_comment_before(text, "syntax"))]
        for kind, name, block in _blocks(text):
            lines += ["", f"### {kind} {name}", "", "```protobuf", block, "```"]
    return "\n".join(lines) + "\n"


def _has_service(path: Path) -> bool:
    return re.search(r"(?m)^service ", path.read_text()) is not None


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and text of each declaration of a file, with the comment above it."""
    declared = re.compile(r"(?ms)^((?://[^\n]*\n)*)((service|message|enum) (\w+) \{(?:\}|.*?^\}))")
    for found in declared.finditer(text):
        yield found[3], found[4], found[1] + found[2]


def _comment_before(text: str, word: str) -> str:
    comment = text.partition(f"\n{word}")[0]
    return " ".join(line.removeprefix("//").strip() for line in comment.splitlines())


def decisions_page() -> str:
    """Return the list of the decision records, newest first."""
    rows = []
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"), reverse=True):
        title = path.read_text().partition("\n")[0].lstrip("# ")
        rows.append(f"- [{title}](../adr/{path.name})")
    head = ["# Decisions", "", "Why things are as they are: choices that are costly to undo.", ""]
    return "\n".join([*head, *rows]) + "\n"


def _paragraphs(text: str) -> Iterable[str]:
    return [re.sub(r"\s*\n\s*", " ", part) for part in text.strip().split("\n\n")]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
