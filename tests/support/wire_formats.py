"""What of the contracts between processes, and of what they store, must stay readable.

    python -m tests.support.wire_formats > tests/replay/wire/<release>.txt

One line for each field, enum value and call, without names of fields, which no byte carries:

    nextgen.v1.TopicAssigned 3 optional string
    nextgen.v1.Kind 3 KIND_TOPIC
    nextgen.v1.ShardService/ReadEvents nextgen.v1.ReadEventsRequest -> stream nextgen.v1.EventBatch
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
)

import protos.nextgen.v1


def formats() -> set[str]:
    """Return the lines of all contracts in ``protos/nextgen/v1``."""
    package = protos.nextgen.v1
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    found: set[str] = set()
    for name in names:
        if name.endswith("_pb2"):
            file = FileDescriptorProto()
            importlib.import_module(f"{package.__name__}.{name}").DESCRIPTOR.CopyToProto(file)
            found |= set(_lines_of(file))
    return found


def _lines_of(file: FileDescriptorProto) -> Iterator[str]:
    for message in file.message_type:
        yield from _message(f"{file.package}.{message.name}", message)
    for enum in file.enum_type:
        yield from _enum(f"{file.package}.{enum.name}", enum)
    for service in file.service:
        for method in service.method:
            yield f"{file.package}.{service.name}/{method.name} {_call(method)}"


def _message(name: str, message: DescriptorProto) -> Iterator[str]:
    for field in message.field:
        yield f"{name} {field.number} {_field(field)}"
    for nested in message.nested_type:
        yield from _message(f"{name}.{nested.name}", nested)
    for enum in message.enum_type:
        yield from _enum(f"{name}.{enum.name}", enum)


def _enum(name: str, enum: EnumDescriptorProto) -> Iterator[str]:
    for value in enum.value:
        yield f"{name} {value.number} {value.name}"


def _field(field: FieldDescriptorProto) -> str:
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"{label} {field.type_name.removeprefix('.') or kind}"


def _call(method: MethodDescriptorProto) -> str:
    sent, received = (
        f"{'stream ' if is_stream else ''}{name.removeprefix('.')}"
        for name, is_stream in (
            (method.input_type, method.client_streaming),
            (method.output_type, method.server_streaming),
        )
    )
    return f"{sent} -> {received}"


if __name__ == "__main__":
    print("\n".join(sorted(formats())))
