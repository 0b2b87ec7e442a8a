"""What a discovery process remembers of absent names, with the limits of a process."""

from discovery.domain.absent_names import AbsentNames
from nextgen.kernel.limits.discovery import (
    ABSENT_ANSWER_BYTES_MAX,
    ABSENT_NAME_MS_MAX,
    ABSENT_NAMES_MAX,
    ABSENT_SHARD_IDLE_MS,
)


def absent_names(
    *, names_max: int = ABSENT_NAMES_MAX, answer_bytes_max: int = ABSENT_ANSWER_BYTES_MAX
) -> AbsentNames:
    return AbsentNames(
        names_max=names_max,
        answer_bytes_max=answer_bytes_max,
        ttl_ms=ABSENT_NAME_MS_MAX,
        idle_ms=ABSENT_SHARD_IDLE_MS,
    )
