"""Refuses gRPC requests of more fields than any caller has a use for, before they are parsed.

Four megabytes have room for two million repeated fields. As objects they take hundreds of
megabytes, and walking them blocks the event loop for seconds.
"""

from __future__ import annotations

from google.protobuf.message import Message

from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.input.field_count import Uncountable, count_fields, layout_of
from nextgen.kernel.limits.inbound import GRPC_COUNTED_BYTES_MIN, GRPC_REQUEST_FIELDS_MAX


class TooManyFields(InvalidRequest):
    """A request has more fields than any caller has a use for. It MUST NOT be parsed."""


class RequestFields:
    """Counts the fields of requests of one kind. Short requests are accepted uncounted."""

    def __init__(self, kind: type[Message]) -> None:
        self._name = kind.DESCRIPTOR.name
        self._layout = layout_of(kind.DESCRIPTOR)

    def check(self, data: bytes) -> None:
        """Return if the request in ``data`` is cheap to parse; call it before parsing.

        Raises:
            TooManyFields: It has more than ``GRPC_REQUEST_FIELDS_MAX``, or cannot be counted.
        """
        if len(data) > GRPC_COUNTED_BYTES_MIN:
            self._count(data)

    def _count(self, data: bytes) -> None:
        try:
            fields, _, _ = count_fields(data, self._layout, fields_max=GRPC_REQUEST_FIELDS_MAX)
        except Uncountable as error:
            raise TooManyFields(f"not a {self._name}: {error}") from None
        if fields > GRPC_REQUEST_FIELDS_MAX:
            raise TooManyFields(f"a {self._name} has more than {GRPC_REQUEST_FIELDS_MAX} fields")
