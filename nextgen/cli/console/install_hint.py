"""How to install what an optional command needs, from wherever this program runs."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

DISTRIBUTION = "pulsar-nextgen"

_CHECKOUT = Path(__file__).parents[3]
_TARGETS = {"pipeline": "make setup-pipeline"}
"""Targets of the checkout's Makefile by extra; ``make setup`` installs the others."""


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of this project.

    In a checkout it is a target of the Makefile. Elsewhere it names the libraries themselves,
    because the project's own package is in no index.
    """
    if (_CHECKOUT / "scripts" / "setup.sh").is_file():
        return f"run {_TARGETS.get(extra, 'make setup')} in {_CHECKOUT}"
    names = [f"'{name}'" for name in requirements_of(extra)]
    return f"pip install {' '.join(names)}"


def requirements_of(extra: str) -> list[str]:
    """Return the libraries of an extra, with their bounds, as the installed package names them."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return [f"{DISTRIBUTION}[{extra}]"]
    marked = (line.partition(";") for line in lines)
    return sorted(
        name.strip()
        for name, _, marker in marked
        if marker.strip().replace("'", '"') == f'extra == "{extra}"'
    )
