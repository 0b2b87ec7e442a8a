"""Why a port refuses this process for its TLS, or for the lack of it. Repeating does not help.

    a call failed before it was sent ── gRPC names the flaw that it found ──▶ the sentence
                                     ╰─ the other side hung up ──▶ dialled once more, to find out

gRPC says of a handshake that the other side ends only that the socket closed: a port with TLS does
it to a process that has none, and one that wants a certificate to a process without it, where a
server of gRPC sends no alert. A process that is just stopping does it, too: nobody answers when it
is dialled, or without TLS.
"""

from __future__ import annotations

import re
import ssl

from nextgen.kernel.errors import RefusesToStart, Unavailable
from nextgen.runtime.security.process_tls import (
    CA_FILE_VARIABLE,
    CallerTls,
    NodeTls,
    tls_in_use,
)
from nextgen.runtime.security.tls import client_context
from nextgen.runtime.security.tls_alert import alert_in, dialled

_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([^:(]+)")
_OTHER_NAME = "Hostname Verification Check failed"
_NOT_TLS = "WRONG_VERSION_NUMBER"
_HUNG_UP = ("Socket closed", "andshake failed", "Connection reset", "End of TCP stream")
_HAS_TLS = f"has TLS, and this process has none: see {CA_FILE_VARIABLE}"
_HUNG_UP_BEHIND = "refuses the certificate of this process, or that it has none"


class TlsRefused(Unavailable):
    """The two sides do not agree on TLS. Nothing was sent, and no repetition will be."""


async def tls_refusal(endpoint: str, text: str) -> TlsRefused | None:
    """Return why ``endpoint`` (host:port) refuses the TLS of this process, None if TLS is not the
    reason, or it is not known to be. ``text`` is what gRPC says of a connection that failed."""
    flaw = _flaw_seen(text)
    if not flaw and any(sign in text for sign in _HUNG_UP):
        flaw = await _flaw_told(endpoint)
    return TlsRefused(f"{endpoint} {flaw}") if flaw else None


def _flaw_seen(text: str) -> str:
    """Return the flaw in gRPC's sentence, "" if there is none."""
    if tls_in_use() is None:
        return ""
    if untrusted := _UNTRUSTED.search(text):
        return f"has a certificate that is not trusted here: {untrusted[1].strip()}"
    if _OTHER_NAME in text:
        return "has a certificate for another host or role"
    return "has no TLS, and this process has" if _NOT_TLS in text else ""


async def _flaw_told(endpoint: str) -> str:
    """Return what the other side objects to in a handshake, "" if nothing is known."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    own = tls_in_use()
    try:
        context = _TRUSTING if own is None else _context_of(own)
        async with dialled(host, int(port), context) as reader:
            if own is None:
                return _HAS_TLS
            # A server of gRPC that takes the certificate speaks first.
            return "" if await reader.read(1) else _HUNG_UP_BEHIND
    except ssl.SSLError as error:
        if alert := alert_in(error):
            return _HAS_TLS if own is None else f"{_HUNG_UP_BEHIND}: {alert}"
    except (OSError, TimeoutError, ValueError, RefusesToStart):
        pass
    return ""


def _context_of(own: NodeTls | CallerTls) -> ssl.SSLContext:
    context = client_context(own.ca_file)
    files = own.store.files if isinstance(own, NodeTls) else own.own
    context.check_hostname = isinstance(own, CallerTls)
    context.set_alpn_protocols(["h2"])
    if files is not None:
        context.load_cert_chain(files.cert_file, files.key_file)
    return context


def _trusting_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TRUSTING = _trusting_context()
"""Finds out whether there is TLS. Nothing is sent by it."""
