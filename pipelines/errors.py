"""Why a job does not begin, or ends with findings."""

from __future__ import annotations

from nextgen.kernel.errors import RefusesToStart


class JobRefused(RefusesToStart):
    """The job cannot run like this: no JVM, an input that is not what it should be.

    What the job would have written is as it was before.
    """

    reason = "JOB_REFUSED"
