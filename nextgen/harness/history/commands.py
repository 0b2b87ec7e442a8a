"""``history check``: judge the recorded history of a run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nextgen.cli.console.command_run import run_blocking
from nextgen.cli.console.options import JsonFlag
from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.kernel.errors import InvalidRequest
from nextgen.runtime.lifecycle.exit_code import CheckFailed

history_app = typer.Typer(help="Histories of chaos runs.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(history_app, name="history")


@history_app.command("check")
def check_command(
    directory: Annotated[Path, typer.Argument(help="Where the run's *.jsonl files are.")],
    report: Annotated[
        Path | None, typer.Option("--report", help="Write the HTML timeline to this file.")
    ] = None,
    json_output: JsonFlag = False,
) -> None:
    """Judge a recorded history. Exit code 4 if there are findings, or if a check is undecided."""

    def work() -> None:
        document, sentences = _judge(directory, report)
        if json_output:
            print_json(document)
        else:
            _print(document, sentences)
        if not document["ok"]:
            raise CheckFailed(sentences[0] if sentences else "the history is not green")

    run_blocking(work)


def _judge(directory: Path, report: Path | None) -> tuple[dict[str, Any], list[str]]:
    from nextgen.harness.history import BadHistory, check, load_history
    from nextgen.harness.history.report import write_report

    try:
        history = load_history(directory)
    except (BadHistory, OSError) as error:
        raise InvalidRequest(str(error)) from error
    verdict = check(history)
    if report is not None:
        write_report(report, history, verdict)
    document = {
        "run_id": history.run.run_id,
        "seed": history.run.seed,
        "ops": verdict.operations,
        "acked": verdict.acked,
        "unknown": verdict.unknown,
        "reads": verdict.reads,
        "events": verdict.events,
        "observations": verdict.observations,
        "keys": verdict.keys,
        **verdict.counts(),
        "max_unavailable_ms": round(verdict.unavailable_ms_max, 1),
        "faults": dict(verdict.faults),
        "ok": verdict.is_green,
    }
    return document, [f"{each.kind} ({each.check}): {each.message}" for each in verdict.findings]


def _print(document: dict[str, Any], sentences: list[str]) -> None:
    rows = [(name, value) for name, value in document.items() if name not in ("faults", "ok")]
    rows += [(f"faults: {kind}", count) for kind, count in document["faults"].items()]
    print_table("green" if document["ok"] else "not green", ("what", "value"), rows)
    for sentence in sentences:
        print_line(sentence)
