"""``bulk``: load files that ``pipeline bulk`` made, into a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nextgen.cli.console.command_run import run_command
from nextgen.cli.console.install_hint import install_hint
from nextgen.cli.console.options import DataDir, JsonFlag, Target, endpoints_of
from nextgen.cli.console.output import print_json, print_table
from nextgen.kernel.errors import RefusesToStart
from nextgen.runtime.lifecycle.exit_code import CheckFailed

if TYPE_CHECKING:
    from nextgen.bulk.progress import Loaded

app = typer.Typer(help="Topics by the million.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="What nextgen pipeline bulk wrote.", exists=True)
]


def register(parent: typer.Typer) -> None:
    """Add the group of commands."""
    parent.add_typer(app, name="bulk")


@app.command()
def load(
    directory: Folder,
    create_parents: Annotated[
        bool, typer.Option("--create-parents", help="Create missing tenants and namespaces.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the last load of these files ended.")
    ] = False,
    target: Target = None,
    data_dir: DataDir = None,
    json_output: JsonFlag = False,
) -> None:
    """Create the topics of load files. Ended at any moment, it may be run again."""

    async def work() -> None:
        try:
            from nextgen.bulk.loader import REFUSED, load_folder
            from nextgen.bulk.progress_bar import load_progress
        except ImportError as error:
            raise RefusesToStart(f"loading needs {error.name}: {install_hint('export')}") from error
        with load_progress(is_shown=not json_output) as show:
            loaded = await load_folder(
                directory,
                endpoints_of(target, data_dir),
                parents=create_parents,
                resume=resume,
                on_loaded=show,
            )
        _print(loaded, json_output=json_output)
        if refused := loaded.total("refused"):
            raise CheckFailed(
                f"{refused} of {loaded.total('rows_total')} topics were refused, "
                f"{directory / REFUSED} says which"
            )

    run_command(work())


def _print(loaded: Loaded, *, json_output: bool) -> None:
    if json_output:
        print_json(loaded.as_dict())
        return
    names = ("rows_total", "skipped", "created", "existing", "refused")
    rows = [
        (shard_id, *(getattr(shard, name) for name in names))
        for shard_id, shard in sorted(loaded.shards.items())
    ]
    rows.append(("all", *(loaded.total(name) for name in names)))
    title = f"Loaded in {loaded.elapsed_s:.1f} s"
    if loaded.namespaces_created or loaded.tenants_created:
        title += (
            f", {loaded.tenants_created} tenants and {loaded.namespaces_created} namespaces created"
        )
    print_table(title, ("shard", "topics", "skipped", "created", "existing", "refused"), rows)
