"""Text that a peer chose, cut to a length that may be logged or answered."""

from __future__ import annotations

_ENDING = "..."


def shortened(text: str, characters_max: int) -> str:
    """Return at most ``characters_max`` characters of ``text``; three dots stand for the rest."""
    if len(text) <= characters_max:
        return text
    return text[: characters_max - len(_ENDING)] + _ENDING
