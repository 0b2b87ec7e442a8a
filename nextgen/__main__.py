"""``python -m nextgen``, and the installed ``nextgen``: the command, or what it lacks."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. It comes with the extra ``cluster`` of the distribution (ADR 0120)."""
    try:
        from nextgen.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("nextgen", "protos"):
            raise
        sys.exit(f"nextgen needs {error.name}: install 'pulsar-nextgen[cluster]'")
    run()


if __name__ == "__main__":
    main()
