"""``python -m nextgen``: the ``nextgen`` command where it is not installed."""

from __future__ import annotations

from nextgen.main import main

if __name__ == "__main__":
    main()
