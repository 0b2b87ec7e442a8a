"""A request in the form that routes use, and the functions that read it: path, query, headers,
body.

Parts of a path and of a query are decoded as forms are, after they were cut: ``+`` is a space and a
part may contain an encoded slash. Names that differ only in encoding are one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import TypeAdapter, ValidationError

from discovery.adapters.rest.answer import JSON, TEXT, RestFailure
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.rest import REST_QUERY_PARAMETERS_MAX
from nextgen.kernel.routing.names import (
    Domain,
    InvalidName,
    NamespaceName,
    TopicName,
    parse_namespace,
    parse_tenant,
    parse_topic,
)

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False}
_SHOWN_CHARACTERS_MAX = 80
_ERRORS_SHOWN_MAX = 3


@dataclass(slots=True)
class RestRequest:
    """A request whose path matched, decoded and checked. It is not changed."""

    parts: Mapping[str, str]
    """The path's variables."""
    query: Mapping[str, str] = field(default_factory=dict)
    """The last value of each parameter."""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """All values of each parameter, in their order."""
    body: Any = None
    """The body, decoded by the route's type; None without one."""
    media_type: str = ""
    """Media type of the body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int = REQUEST_TIMEOUT_DEFAULT_MS
    topic_domain: str = Domain.PERSISTENT.value
    """The domain of the topic that the path names, if it names no domain."""
    _topic: TopicName | None = field(default=None, init=False, repr=False, compare=False)

    def tenant(self) -> str:
        """Return the tenant that the path names.

        Raises:
            InvalidName: It is no tenant's name.
        """
        return parse_tenant(self.parts["tenant"])

    def namespace(self) -> NamespaceName:
        """Return the namespace that the path names.

        Raises:
            InvalidName: It is no namespace's name.
        """
        return parse_namespace(self._namespace_text())

    def topic(self) -> TopicName:
        """Return the topic that the path names.

        Raises:
            InvalidName: It is no topic's name.
        """
        if self._topic is None:
            domain = self.parts.get("domain") or self.parts.get("topic-domain")
            domain = domain or self.topic_domain
            text = f"{domain}://{self._namespace_text()}/{self.parts['topic']}"
            # The frame needs it to authorize the request, and the route to answer it.
            self._topic = parse_topic(text)
        return self._topic

    def _namespace_text(self) -> str:
        tenant, namespace = self.parts["tenant"], self.parts["namespace"]
        if "/" in tenant or "/" in namespace:
            raise InvalidName("a tenant's or namespace's name contains a slash")
        return f"{tenant}/{namespace}"

    def number(self, name: str, default: int) -> int:
        """Return a parameter that is a whole number.

        Raises:
            RestFailure: 400, it is none, or has more than 18 digits.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        if _NUMBER.fullmatch(text) is None:
            raise RestFailure(400, f"{name} is {shown(text)}, it must be a number")
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean parameter.

        Raises:
            RestFailure: 400, it is neither true nor false.
        """
        text = self.query.get(name, "")
        if not text:
            return default
        if (value := _BOOLEANS.get(text.lower())) is None:
            raise RestFailure(400, f"{name} is {shown(text)}, it must be true or false")
        return value


def shown(text: str) -> str:
    """Return the beginning of a peer's ``text``, quoted, for a reason."""
    return ascii(text[:_SHOWN_CHARACTERS_MAX])


def decoded(part: str) -> str:
    """Return a part of a path.

    Raises:
        RestFailure: 412, it is not UTF-8.
    """
    if "%" not in part and "+" not in part:
        return part
    try:
        return unquote_plus(part, errors="strict")
    except UnicodeDecodeError as error:
        raise RestFailure(412, f"{shown(part)} is not UTF-8, encoded as in a form") from error


def parameters(query: str) -> dict[str, list[str]]:
    """Return the values of each parameter of a query.

    Raises:
        RestFailure: 400, there are too many.
    """
    if not query:
        return {}
    try:
        return parse_qs(query, keep_blank_values=True, max_num_fields=REST_QUERY_PARAMETERS_MAX)
    except ValueError as error:
        reason = f"a query has more than {REST_QUERY_PARAMETERS_MAX} parameters"
        raise RestFailure(400, reason) from error


def check_accepts(accept: str, media_type: str) -> None:
    """Check that a client takes an answer of this type.

    Raises:
        RestFailure: 406.
    """
    if not accept:
        return
    wildcard = media_type.split("/")[0] + "/*"
    # Java's admin library accepts JSON only, and reads texts all the same.
    taken = {media_type, wildcard, "*/*", *((JSON,) if media_type == TEXT else ())}
    for accepted in accept.split(","):
        if accepted.partition(";")[0].strip().lower() in taken:
            return
    raise RestFailure(406, f"the answer is {media_type}, which the Accept header leaves out")


def check_media_type(media_type: str, known: Collection[str]) -> None:
    """Check a body's type, which may be left out.

    Raises:
        RestFailure: 415.
    """
    if media_type not in known:
        wanted = " or ".join(known)
        raise RestFailure(415, f"the body is {shown(media_type)}, it must be {wanted}")


def media_type_of(request: web.Request) -> str:
    """Return the type of a request's body without its parameters; JSON if the client names none."""
    header = request.headers.get("Content-Type", "")
    return header.partition(";")[0].strip().lower() or JSON


async def read_body(request: web.Request, bytes_max: int) -> bytes:
    """Return the whole body.

    Raises:
        RestFailure: 413, it is too large; 400, it did not arrive whole, or is badly compressed.
    """
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := await request.content.readany():
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            pieces.append(piece)
    except (HttpProcessingError, web.RequestPayloadError, ConnectionError) as error:
        raise RestFailure(400, f"the body cannot be read: {error}") from error
    return b"".join(pieces)


def quoted(data: bytes) -> bytes:
    """Return a text that came without quotes as JSON.

    Raises:
        RestFailure: 400, it is not UTF-8.
    """
    if data.lstrip().startswith(b'"'):
        return data
    try:
        return json.dumps(data.decode()).encode()
    except UnicodeDecodeError as error:
        raise RestFailure(400, "the body is not UTF-8") from error


def parsed_body(data: bytes, kind: TypeAdapter[Any]) -> Any:
    """Return the value in a body.

    Raises:
        RestFailure: 400, it is not JSON, or not of this type.
    """
    try:
        return kind.validate_json(data, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        shown_problems = [
            f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}"
            for each in problems[:_ERRORS_SHOWN_MAX]
        ]
        raise RestFailure(400, "; ".join(shown_problems)[:1_000]) from error


def _too_large(bytes_max: int) -> RestFailure:
    return RestFailure(413, f"a body has at most {bytes_max} bytes here")
