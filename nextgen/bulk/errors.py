"""Why a load does not begin, or ends early. What was created stays; again is harmless."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart


class LoadRefused(RefusesToStart):
    """The folder is not fit: no load files, damaged ones, or ones for another shard map."""

    reason = "LOAD_REFUSED"
