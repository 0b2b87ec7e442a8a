"""Shared by both programs that promote a last survivor: flags, refusals, the report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from nextgen.kernel.errors import MetadataError, RefusesToStart
from nextgen.runtime.lifecycle.data_directory import DataDirectory, Identity, identity_of
from nextgen.runtime.lifecycle.lost_nodes import refuse_if_any_answers
from nextgen.runtime.lifecycle.process import EXIT_REFUSED

Addresses = Sequence[tuple[str, int]]


class Promoted(Protocol):
    """The findings of a promotion; see ``nextgen.replication.host.promotion``."""

    @property
    def term(self) -> int: ...
    @property
    def next_position(self) -> int: ...
    @property
    def may_be_missing(self) -> str: ...
    @property
    def record(self) -> Mapping[str, Any]: ...


RECORD_SUFFIX = ".promotions"


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that every group needs."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--node-dir", type=Path, required=True, help="the survivor's directory")
    made.add_argument("--lost", action="append", default=[], help="a node that is gone for good")
    return made


def run_recovery(
    given: argparse.Namespace,
    component: str,
    addresses_of: Callable[[], Mapping[str, Addresses]],
    promote: Callable[[Identity, frozenset[str]], Promoted],
    group: str,
) -> None:
    """Lock the survivor's directory, check and promote it, and print what may be missing.

    ``addresses_of`` returns the last known addresses of nodes. A refusal ends the process.
    """
    try:
        identity = identity_of(given.node_dir)
        if identity.component != component:
            raise RefusesToStart(f"{given.node_dir} belongs to a {identity.component}")
        with DataDirectory.open(
            given.node_dir,
            cluster_id=identity.cluster_id,
            node_id=identity.node_id,
            component=component,
        ):
            lost = frozenset(given.lost)
            if identity.node_id in lost:
                raise RefusesToStart(f"{identity.node_id} is the survivor and cannot be lost")
            known = addresses_of()
            unknown = sorted(lost - known.keys())
            if unknown:
                raise RefusesToStart(f"no node {', '.join(unknown)} is known here")
            refuse_if_any_answers({node_id: known[node_id] for node_id in lost})
            promotion = promote(identity, lost)
            _record(given.node_dir / f"{group}{RECORD_SUFFIX}", promotion, lost)
    except MetadataError as error:
        sys.stderr.write(f"refused: {error}\n")
        sys.exit(EXIT_REFUSED)
    sys.stdout.write(
        f"{identity.node_id} is the only voter of {group} now, in term {promotion.term}: "
        f"start it.\n"
        f"May be missing: {promotion.may_be_missing}.\n"
        f"The next event gets position {promotion.next_position}.\n"
    )


def _record(path: Path, promotion: Promoted, lost: frozenset[str]) -> None:
    """Append the promotion to the record that explains the gap in the log."""
    line = {"lost": sorted(lost), **promotion.record}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
