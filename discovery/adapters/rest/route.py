"""One row of the table of routes: a path with a method, its input and its answers.

Requests are matched, decoded and checked by the table, and the OpenAPI document is generated from
it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from discovery.adapters.rest.answer import JSON, Answer, Stream
from discovery.adapters.rest.request import RestRequest
from nextgen.kernel.governance.access import Action, Resource, ResourceKind
from nextgen.kernel.limits.cluster import NAME_PART_BYTES_MAX, TOPIC_LOCAL_NAME_BYTES_MAX
from nextgen.kernel.limits.rest import REST_BODY_BYTES_MAX
from nextgen.kernel.routing.names import Domain

Schema = Mapping[str, Any]
"""A JSON schema."""

Work = Callable[[RestRequest], Awaitable[Answer | Stream]]
"""Answers a request. Raises ``RestFailure``, ``InvalidName`` or a ``MetadataError``."""

_NAME_PART: Schema = {
    "type": "string",
    "pattern": r"^[-=:.\w]+$",
    "minLength": 1,
    "maxLength": NAME_PART_BYTES_MAX,
}

VARIABLES: Mapping[str, Schema] = MappingProxyType(
    {
        "tenant": _NAME_PART,
        "namespace": _NAME_PART,
        "cluster": _NAME_PART,
        "domain": {"type": "string", "enum": ["persistent", "non-persistent"]},
        "topic": {"type": "string", "minLength": 1, "maxLength": TOPIC_LOCAL_NAME_BYTES_MAX},
    }
)
"""Schemas of path variables by name; other variables are strings. ``enum`` lists all values."""

BOOLEAN: Schema = MappingProxyType({"type": "boolean"})
TEXT_VALUE: Schema = MappingProxyType({"type": "string"})


@dataclass(frozen=True, slots=True)
class Body:
    """The body that a route reads: JSON of a type, checked by pydantic."""

    type: TypeAdapter[Any]
    is_required: bool = True
    bytes_max: int = REST_BODY_BYTES_MAX
    media_types: tuple[str, ...] = (JSON,)
    is_text: bool = False
    """It may be a text without quotes, whatever its media type says: Java's library sends such."""


@dataclass(frozen=True, slots=True)
class Route:
    """Serves ``method`` of ``path``, in which ``{name}`` is a variable: one whole part."""

    method: str
    path: str
    work: Work
    summary: str
    action: Action
    """The action on the resource that the path names, which the client has to be allowed."""
    _: KW_ONLY
    body: Body | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
    """Parameters that it reads; others are ignored."""
    answers: Mapping[int, str] = field(default_factory=dict)
    """Statuses with their meanings, in addition to those of every route."""
    media_type: str = JSON
    """Media type of a successful answer with a body."""
    topic_domain: str = Domain.PERSISTENT.value
    """The domain of the path's topic, if the path names none."""
    scope: ResourceKind | None = None
    """The kind of resource that ``action`` is on, of those that contain what the path names; None:
    what it names. Whoever may read a namespace administers it, so this is how a route is for the
    tenant's admins, or with ``CLUSTER`` for superusers."""
    besides: Callable[[RestRequest], Iterable[tuple[Action, Resource]]] | None = None
    """What else the client has to be allowed, by the body."""
    is_lookup: bool = False
    """Whether it counts as a lookup in the cluster's objective."""

    parts: tuple[str, ...] = field(init=False)
    variables: Mapping[str, int] = field(init=False)
    """Their names, and which of the parts they are."""

    def __post_init__(self) -> None:
        # Here and not for each request.
        parts = tuple(self.path.strip("/").split("/"))
        places = {name[1:-1]: place for place, name in enumerate(parts) if name.startswith("{")}
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "variables", places)
