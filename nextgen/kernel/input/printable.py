"""Text that users or peers chose, made fit for a terminal.

A name may hold escape sequences that move the cursor, controls that turn the direction of writing
round, or line breaks. Shown as they are they make a person see what is not there.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with an escape in place of each character that is not shown as itself.

    Those are controls, line breaks, controls of the direction of writing, what is invisible or
    not assigned, and halves of surrogate pairs: what ``str.isprintable`` denies.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def printable_json(document: str) -> str:
    """Return a JSON document on one line in which no text steers a terminal; it means the same."""
    if document.isprintable():
        return document
    return "".join(one if one.isprintable() else _escaped_in_json(one) for one in document)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escaped_in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))
