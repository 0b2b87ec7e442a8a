"""Hashes of passwords, in the two formats that the standard library can check.

    $scrypt$ln=14,r=8,p=1$SALT$HASH          memory-hard: made by ``password_hash``
    $pbkdf2-sha256$ROUNDS$SALT$HASH          as other tools make it

Salt and hash are base64 without padding. bcrypt, apr1 (MD5) and crypt are refused: the first needs
a library, the others are too weak.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nextgen.kernel.errors import RefusesToStart, Unauthenticated
from nextgen.kernel.limits.inbound import (
    PASSWORD_HASH_MEMORY_BYTES_MAX,
    PASSWORD_HASH_ROUNDS_MAX,
    PASSWORD_USERS_MAX,
)
from nextgen.runtime.security.authentication.provider import checked_role

_SCRYPT = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d)\$([^$]+)\$([^$]+)")
_PBKDF2 = re.compile(r"\$pbkdf2-sha256\$(\d{1,9})\$([^$]+)\$([^$]+)")
_SALT_BYTES = 16
_HASH_BYTES = 32
_LN, _R, _P = 14, 8, 1
_HASH_BYTES_MIN = 16
_PBKDF2_ROUNDS_MIN = 10_000


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """One hash of a password file."""

    derive: Callable[[bytes], bytes] = field(repr=False)
    expected: bytes = field(repr=False)

    def is_of(self, password: bytes) -> bool:
        """Return whether it is the hash of ``password``. Takes milliseconds."""
        return hmac.compare_digest(self.derive(password), self.expected)


def password_hash(password: str) -> str:
    """Return a new hash of ``password`` for a password file."""
    salt = os.urandom(_SALT_BYTES)
    derived = _scrypt(_LN, _R, _P, salt, _HASH_BYTES)(password.encode())
    return f"$scrypt$ln={_LN},r={_R},p={_P}${_text(salt)}${_text(derived)}"


def parsed_hash(text: str) -> PasswordHash:
    """Return the hash that ``text`` writes out.

    Raises:
        ValueError: It is in another format, or its check costs too much or proves too little.
    """
    if found := _SCRYPT.fullmatch(text):
        ln, r, p = (int(number) for number in found.groups()[:3])
        salt, expected = _bytes(found[4]), _bytes(found[5])
        if not (ln >= 1 and r and p) or 128 * r * 2**ln * p > PASSWORD_HASH_MEMORY_BYTES_MAX:
            raise ValueError(f"scrypt takes more than {PASSWORD_HASH_MEMORY_BYTES_MAX} bytes")
        derive = _scrypt(ln, r, p, salt, len(expected))
    elif found := _PBKDF2.fullmatch(text):
        rounds, salt, expected = int(found[1]), _bytes(found[2]), _bytes(found[3])
        if not _PBKDF2_ROUNDS_MIN <= rounds <= PASSWORD_HASH_ROUNDS_MAX:
            raise ValueError(
                f"PBKDF2 has {_PBKDF2_ROUNDS_MIN} to {PASSWORD_HASH_ROUNDS_MAX} rounds"
            )
        derive = _pbkdf2(rounds, salt, len(expected))
    else:
        raise ValueError("the hash is neither $scrypt$ nor $pbkdf2-sha256$")
    if len(expected) < _HASH_BYTES_MIN:
        raise ValueError(f"the hash has fewer than {_HASH_BYTES_MIN} bytes")
    return PasswordHash(derive, expected)


def parsed_users(name: str, data: bytes) -> Mapping[str, PasswordHash]:
    """Return the users of a password file: lines of ``user:hash``; ``#`` begins a comment.

    Raises:
        RefusesToStart: A line is none, or a user is there twice. The message has its number only.
    """
    users: dict[str, PasswordHash] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RefusesToStart(f"{name} is no UTF-8") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, hashed = line.strip().partition(":")
        try:
            if not colon or user in users:
                raise ValueError("it is no user:hash of a user that has none yet")
            users[checked_role(user)] = parsed_hash(hashed)
        except (ValueError, Unauthenticated) as error:
            raise RefusesToStart(f"{name}: line {number}: {error}") from error
    if len(users) > PASSWORD_USERS_MAX:
        raise RefusesToStart(f"{name} has more than {PASSWORD_USERS_MAX} users")
    return users


def _scrypt(ln: int, r: int, p: int, salt: bytes, size: int) -> Callable[[bytes], bytes]:
    def derive(password: bytes) -> bytes:
        # OpenSSL counts some more than the algorithm's own memory.
        memory_bytes = 2 * PASSWORD_HASH_MEMORY_BYTES_MAX
        return hashlib.scrypt(
            password, salt=salt, n=2**ln, r=r, p=p, maxmem=memory_bytes, dklen=size
        )

    return derive


def _pbkdf2(rounds: int, salt: bytes, size: int) -> Callable[[bytes], bytes]:
    return lambda password: hashlib.pbkdf2_hmac("sha256", password, salt, rounds, size)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        # Passlib writes "." for "+".
        return base64.b64decode(text.replace(".", "+") + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError("salt or hash is no base64") from error
