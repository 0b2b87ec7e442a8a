"""How long a caller waits before it sends a refused request again."""

from __future__ import annotations

import random

from nextgen.kernel.errors import MetadataError

_AFTER_SPREAD = 1.5


def retry_pause_ms(error: MetadataError, backoff_ms: float) -> float:
    """Return the pause before the request that failed with ``error`` is sent again.

    Between half of ``backoff_ms`` and all of it, and never less than ``error.retry_after_ms``:
    up to half as long again, so that callers refused together do not come back together.
    """
    backoff_ms *= random.uniform(0.5, 1.0)
    return max(backoff_ms, error.retry_after_ms * random.uniform(1.0, _AFTER_SPREAD))
