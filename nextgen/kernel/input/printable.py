"""Makes text of users or peers safe for a terminal.

A name may hold escape sequences that move the cursor, controls that reverse the direction of
writing, or line breaks. Unescaped, they could forge what a person sees.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with each character escaped that ``str.isprintable`` denies.

    Those are controls, line breaks, controls of the direction of writing, invisible or unassigned
    characters, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def printable_json(document: str) -> str:
    """Return a JSON document of the same content on one line, safe for a terminal."""
    if document.isprintable():
        return document
    return "".join(one if one.isprintable() else _escaped_in_json(one) for one in document)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escaped_in_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))
