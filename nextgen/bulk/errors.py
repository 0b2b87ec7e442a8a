"""Why a load does not begin, or ends early. Created topics stay, and a repetition is harmless."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart


class LoadRefused(RefusesToStart):
    """The folder is unusable: no load files, damaged ones, or files for another shard map."""

    reason = "LOAD_REFUSED"
