"""The file of a changed policy: overrides of the service and of namespaces, by Pulsar's names.

    {"splitMsgRateInThreshold": 5000,
     "namespaces": {"acme/orders": {"maxSegments": 16}}}

A field may have its name in ``broker.conf``, too: ``scalableTopicSplitMsgRateInThreshold``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_FIELDS,
    DEFAULT_AUTO_SCALE,
    InvalidAutoScale,
    resolve,
)
from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.routing.names import InvalidName, parse_namespace
from pipelines.backtest.model import ChangedPolicy
from pipelines.errors import JobRefused

_NAMESPACES = "namespaces"


def read_policy(path: Path) -> ChangedPolicy:
    """Return what the file says.

    Raises:
        JobRefused: It cannot be read, names something unknown, or a value makes no sense. The
            message has the field's name.
    """
    try:
        content = parse_json(path.read_bytes())
    except OSError as error:
        raise JobRefused(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise JobRefused(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise JobRefused(f"{path} is no object of fields by Pulsar's names")
    namespaces = content.pop(_NAMESPACES, {})
    if not isinstance(namespaces, dict):
        raise JobRefused(f"{path}: {_NAMESPACES} is no object of policies by namespace")
    if not content and not namespaces:
        raise JobRefused(f"{path} changes nothing: name a field, or a namespace with fields")
    service = _override(path, "", content)
    of_namespaces = {}
    for name, fields in namespaces.items():
        try:
            parse_namespace(name)
        except InvalidName as error:
            raise JobRefused(f"{path}: {_NAMESPACES}: {error}") from error
        if not isinstance(fields, dict):
            raise JobRefused(f"{path}: the policy of {name} is no object of fields")
        of_namespaces[name] = _override(path, f"{name}: ", fields, service)
    return ChangedPolicy(service, of_namespaces)


def _override(path: Path, where: str, fields: Mapping[str, Any], service: str = "") -> str:
    """Return an override as JSON, checked over the defaults and ``service``."""
    known = {}
    for given, value in fields.items():
        name = _field(given)
        if name not in AUTO_SCALE_FIELDS:
            raise JobRefused(
                f"{path}: {where}{given} is no field of a policy; there are "
                f"{', '.join(sorted(AUTO_SCALE_FIELDS))}"
            )
        known[name] = value
    text = json.dumps(known, separators=(",", ":"), sort_keys=True) if known else ""
    try:
        resolve(DEFAULT_AUTO_SCALE, service, text)
    except InvalidAutoScale as error:
        raise JobRefused(f"{path}: {where}{error}") from error
    return text


def _field(name: str) -> str:
    """Return the name of a field of a policy, for its name in ``broker.conf`` too."""
    prefix = "scalableTopic"
    if name == f"{prefix}AutoScaleEnabled":
        return "enabled"
    short = name.removeprefix(prefix)
    return name if short == name else f"{short[:1].lower()}{short[1:]}"
