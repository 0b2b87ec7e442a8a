"""Limits of a discovery process: memory of absent names, turns of its callers."""

ABSENT_NAMES_MAX = 100_000
"""Absent names that one discovery process remembers, some 500 bytes each. The oldest go first."""

ABSENT_ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of the answers about them: a name may have a kilobyte, and an answer holds it twice."""

ABSENT_NAME_MS_MAX = 2_000
"""How long a name is remembered as absent: as long as an assignment without news. A name that is
looked up without a pause costs its shard one lookup in so long."""
