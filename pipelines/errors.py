"""Why a job does not begin, or ends with findings."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart


class JobRefused(RefusesToStart):
    """The job cannot run: there is no JVM, or an input is wrong.

    The job's output folder is unchanged.
    """

    reason = "JOB_REFUSED"
