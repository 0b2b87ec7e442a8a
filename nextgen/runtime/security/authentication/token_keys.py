"""Keys of tokens: their formats are those of Pulsar, and each kind pins its algorithms.

secret key     at least 32 bytes                   HS256, HS384, HS512
RSA key        DER or PEM, at least 2,048 bits     RS256, RS384, RS512
EC key         DER or PEM, of one curve            ES256 (P-256), ES384 (P-384), ES512 (P-521)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from nextgen.kernel.errors import RefusesToStart

SECRET_KEY_BYTES_MIN = 32
RSA_KEY_BITS_MIN = 2_048

_SECRET_SIZES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Bytes that a secret key of an algorithm has at least, by RFC 7518."""

_OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_CURVES: dict[str, Callable[[], ec.EllipticCurve]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}
_RSA = ("RS256", "RS384", "RS512")

ALGORITHMS = (*_SECRET_SIZES, *_RSA, *_CURVES)
"""All that tokens are made and accepted with. ``none`` is not one of them."""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key with the algorithms of its kind: a token with any other is refused."""

    key: Any = field(repr=False)
    algorithms: tuple[str, ...]


def secret_key(name: str, data: bytes) -> TokenKey:
    """Return the secret key in ``data``.

    Raises:
        RefusesToStart: It is too short.
    """
    if len(data) < SECRET_KEY_BYTES_MIN:
        raise RefusesToStart(
            f"{name}: the secret key has {len(data)} bytes, at least {SECRET_KEY_BYTES_MIN} are "
            "required"
        )
    return TokenKey(data, tuple(_SECRET_SIZES))


def public_key(name: str, data: bytes) -> TokenKey:
    """Return the public key in ``data``, in DER (SubjectPublicKeyInfo) or PEM.

    Raises:
        RefusesToStart: It is no such key, too short, or of another kind.
    """
    is_pem = data.lstrip().startswith(b"-----BEGIN")
    load = serialization.load_pem_public_key if is_pem else serialization.load_der_public_key
    try:
        key = load(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise RefusesToStart(f"{name} is no public key in DER or PEM") from error
    return public_token_key(name, key)


def public_token_key(name: str, key: object) -> TokenKey:
    """Return a public key of the ``cryptography`` library with its algorithms.

    Raises:
        RefusesToStart: As ``public_key``.
    """
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < RSA_KEY_BITS_MIN:
            raise RefusesToStart(
                f"{name}: the RSA key has {key.key_size} bits, at least {RSA_KEY_BITS_MIN} are "
                "required"
            )
        return TokenKey(key, _RSA)
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _OF_CURVES:
        return TokenKey(key, (_OF_CURVES[key.curve.name],))
    raise RefusesToStart(f"{name} is neither an RSA key nor an EC key of a curve of ES256/384/512")


def signing_key(name: str, data: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the private key in ``data``, in DER (PKCS #8) or PEM, and its algorithms.

    Raises:
        RefusesToStart: It is no such key, or of another kind.
    """
    is_pem = data.lstrip().startswith(b"-----BEGIN")
    load = serialization.load_pem_private_key if is_pem else serialization.load_der_private_key
    try:
        key = load(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RefusesToStart(f"{name} is no private key in DER or PEM") from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise RefusesToStart(f"{name} is neither an RSA key nor an EC key")
    return key, public_token_key(name, key.public_key()).algorithms


def algorithm_of_secret(data: bytes) -> str:
    """Return the algorithm that a token is signed with by default: the strongest of the size."""
    return [name for name, size in _SECRET_SIZES.items() if len(data) >= size][-1]


def secret_bytes(algorithm: str) -> int:
    """Return how many random bytes a new secret key has.

    Raises:
        RefusesToStart: The algorithm has no secret keys.
    """
    if algorithm not in _SECRET_SIZES:
        raise RefusesToStart(
            f"{algorithm} has no secret key: the algorithms are {', '.join(_SECRET_SIZES)}"
        )
    return _SECRET_SIZES[algorithm]


def new_key_pair(algorithm: str) -> tuple[bytes, bytes]:
    """Return a new private key (PKCS #8) and its public key (SubjectPublicKeyInfo), in DER.

    Raises:
        RefusesToStart: The algorithm has no key pairs.
    """
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
    if algorithm in _RSA:
        private = rsa.generate_private_key(public_exponent=65_537, key_size=RSA_KEY_BITS_MIN)
    elif algorithm in _CURVES:
        private = ec.generate_private_key(_CURVES[algorithm]())
    else:
        raise RefusesToStart(
            f"{algorithm} has no key pair: the algorithms are {', '.join((*_RSA, *_CURVES))}"
        )
    return (
        private.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )
