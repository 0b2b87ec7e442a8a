"""Pulsar's names: what is accepted, how it is spelled out, and where it is routed.

    persistent://tenant/namespace/base-partition-3      a partition of a classic topic
    topic://tenant/namespace/base                       a scalable topic (Pulsar 5)
    segment://tenant/namespace/base/0000-7fff-3         one of its segments

Parsing follows Pulsar. Where this project is stricter, so that a name is always a legal path,
log line and key, the rule is marked *ours* below.

- The domain is case-insensitive on input. ``x`` means ``persistent://public/default/x`` and
  ``t/n/x`` means ``persistent://t/n/x``; no other number of parts goes without a domain.
- Names of four parts (``tenant/cluster/namespace/topic``) are Pulsar's first version: refused.
- A tenant and a namespace consist of ASCII letters, digits and ``_ - = : .``; *ours*: neither is
  ``.`` or ``..``, and both have a length limit.
- A local name is stored verbatim, never URL-decoded. Only in the domains ``topic`` and
  ``segment`` may it contain ``/``. It has no white space at its ends. *Ours*: no control
  character, no lone surrogate, no empty, ``.`` or ``..`` part, and a length limit.
- ``-partition-N`` counts when it ends the name, N being ASCII decimal without sign or leading
  zero and below 2**31. Anything else, ``-partition-01`` or ``-partition-x``, is part of an
  ordinary name. *Ours*: N has a limit; a suffix behind a suffix, a suffix behind nothing and a
  suffix in the domains ``topic`` and ``segment`` are refused, so that the base name of a name
  never has a base name of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from nextgen.kernel.limits.cluster import (
    NAME_PART_BYTES_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    TOPIC_LOCAL_NAME_BYTES_MAX,
    TOPIC_TEXT_CHARACTERS_MAX,
)

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"
PARTITION_SUFFIX = "-partition-"
SEGMENT_ID_MAX = 2**63 - 1

_INT32_MAX = 2**31 - 1
_SHOWN_CHARACTERS_MAX = 80
_DOTS = frozenset({".", ".."})

_PART = re.compile(r"[-=:.\w]+", re.ASCII)
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_DESCRIPTOR = re.compile(r"([0-9a-fA-F]{1,4})-([0-9a-fA-F]{1,4})-([0-9]{1,19})")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ORDINARY = re.compile(
    rf"(?:(persistent|non-persistent)://)?"
    rf"(?!\.\.?/)([-=:.\w]{{1,{NAME_PART_BYTES_MAX}}})/"
    rf"(?!\.\.?/)([-=:.\w]{{1,{NAME_PART_BYTES_MAX}}})/"
    rf"(?!\.\.?\Z)([-=:.\w]{{1,{TOPIC_LOCAL_NAME_BYTES_MAX}}})",
    re.ASCII,
)
"""Matches the names of nearly all requests at once; other names take the path that explains
errors."""


class InvalidName(ValueError):
    """The text is not a name. The message is one sentence: the value and the reason."""


class Domain(StrEnum):
    """The domain of a topic's name."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"
    TOPIC = "topic"
    SEGMENT = "segment"


_SEGMENT = Domain.SEGMENT
"""To look a member up in its enumeration takes longer than to make a name's text, which shards do
several times for each topic that is created."""


class UnitKind(StrEnum):
    """The part of a topic that a unit is. The value starts its text form."""

    WHOLE = ""
    PARTITION = "p"
    SEGMENT = "s"


@dataclass(frozen=True, slots=True)
class Unit:
    """What is assigned to one broker: a whole topic, a partition or a segment of it.

    Make one with ``whole``, ``partition`` or ``segment``. ``number`` is 0 for a whole topic.
    """

    kind: UnitKind
    number: int

    @staticmethod
    def whole() -> Unit:
        return _WHOLE

    @staticmethod
    def partition(number: int) -> Unit:
        assert 0 <= number < PARTITIONS_PER_TOPIC_MAX, f"no partition has number {number}"
        return Unit(UnitKind.PARTITION, number)

    @staticmethod
    def segment(segment_id: int) -> Unit:
        assert 0 <= segment_id <= SEGMENT_ID_MAX, f"no segment has id {segment_id}"
        return Unit(UnitKind.SEGMENT, segment_id)

    @property
    def text(self) -> str:
        """The stable text form: empty, ``p3`` or ``s17``. Stored: never changes."""
        return "" if self.kind is UnitKind.WHOLE else f"{self.kind.value}{self.number}"

    @staticmethod
    def parse(text: str) -> Unit:
        """Return the unit whose ``text`` is given.

        Raises:
            InvalidName: It is the text form of no topic.
        """
        if not text:
            return _WHOLE
        kind, digits = text[0], text[1:]
        if kind in "ps" and _DECIMAL.fullmatch(digits):
            number = int(digits)
            if kind == "p" and number < PARTITIONS_PER_TOPIC_MAX:
                return Unit(UnitKind.PARTITION, number)
            if kind == "s" and number <= SEGMENT_ID_MAX:
                return Unit(UnitKind.SEGMENT, number)
        raise InvalidName(f"unit {_shown(text)} is neither empty nor like 'p3' or 's17'")


_WHOLE = Unit(UnitKind.WHOLE, 0)


def assignment_key(topic_id: str, unit: Unit) -> str:
    """Return the key that assignment, epoch, ledger and load of ``unit`` are kept under."""
    return f"{topic_id}/{unit.text}"


@dataclass(frozen=True, slots=True)
class SegmentDescriptor:
    """A segment's inclusive 16-bit hash range and its id, which is never reused."""

    hash_start: int
    hash_end: int
    segment_id: int

    @property
    def text(self) -> str:
        """Canonical form, for example ``0000-7fff-3``."""
        return f"{self.hash_start:04x}-{self.hash_end:04x}-{self.segment_id}"


@dataclass(frozen=True, slots=True)
class NamespaceName:
    """A namespace's full name: its tenant and its name within it."""

    tenant: str
    local: str

    @property
    def text(self) -> str:
        return f"{self.tenant}/{self.local}"


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic's name in parts. Comes from ``parse_topic``; two spellings of one name are equal.

    ``partition`` is set for a partition's own name only, ``segment`` in the domain ``segment``.
    """

    domain: Domain
    tenant: str
    namespace: str
    base_name: str
    partition: int | None = None
    segment: SegmentDescriptor | None = None

    @property
    def local_name(self) -> str:
        """The part behind the namespace: base name, and partition suffix or descriptor."""
        if self.partition is not None:
            return f"{self.base_name}{PARTITION_SUFFIX}{self.partition}"
        if self.segment is not None:
            return f"{self.base_name}/{self.segment.text}"
        return self.base_name

    @property
    def text(self) -> str:
        """The full canonical name, partition or segment included."""
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local_name}"

    @property
    def base_text(self) -> str:
        """The canonical name of the topic this belongs to; a segment's is in ``topic://``."""
        domain = Domain.TOPIC if self.domain is _SEGMENT else self.domain
        return f"{domain}://{self.tenant}/{self.namespace}/{self.base_name}"

    @property
    def namespace_text(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)

    @property
    def routing_key(self) -> str:
        """The hashed text: the same for every domain, partition and segment of one name."""
        return f"{self.tenant}/{self.namespace}/{self.base_name}"

    @property
    def unit(self) -> Unit:
        """The unit of the topic that this name means."""
        if self.partition is not None:
            return Unit.partition(self.partition)
        if self.segment is not None:
            return Unit.segment(self.segment.segment_id)
        return _WHOLE

    def of_partition(self, partition: int) -> TopicName:
        """Return the name of one partition of this whole topic."""
        assert self.domain in _CLASSIC, f"{self.text} has no partitions"
        assert 0 <= partition < PARTITIONS_PER_TOPIC_MAX, f"no partition has number {partition}"
        return TopicName(self.domain, self.tenant, self.namespace, self.base_name, partition)


_CLASSIC = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})
_DOMAINS: dict[str | None, Domain] = {domain.value: domain for domain in Domain}
_DOMAINS[None] = Domain.PERSISTENT


def parse_tenant(text: str) -> str:
    """Return ``text`` if it is a tenant's name.

    Raises:
        InvalidName: It is not.
    """
    _check_part("tenant", text)
    return text


def parse_namespace(text: str) -> NamespaceName:
    """Return the parts of ``tenant/namespace``.

    Raises:
        InvalidName: It is not a namespace's full name.
    """
    parts = text.split("/", 3)
    if len(parts) == 3:
        raise InvalidName(
            f"namespace {_shown(text)} has three parts, names with a cluster in them "
            "are Pulsar's first version and are not supported"
        )
    if len(parts) != 2:
        raise InvalidName(f"namespace {_shown(text)} is not of the form tenant/namespace")
    tenant, local = parts
    _check_part("tenant", tenant)
    _check_part("namespace", local)
    return NamespaceName(tenant, local)


def scalable_name(name: TopicName) -> TopicName:
    """Return the name of the scalable topic that ``name``, in any domain, is or belongs to."""
    return TopicName(Domain.TOPIC, name.tenant, name.namespace, name.base_name)


def tenant_in(topic: str) -> str:
    """Return the tenant of a canonical topic name, "" of another text. Nothing is checked."""
    return topic.partition("://")[2].partition("/")[0]


def parse_topic(text: str) -> TopicName:
    """Return the parts of a topic's full or short name.

    Raises:
        InvalidName: It is not a topic's name.
    """
    ordinary = _ORDINARY.fullmatch(text)
    if ordinary is None:
        return _parse_any_topic(text)
    domain, tenant, namespace, local = ordinary.groups()
    if PARTITION_SUFFIX in local:
        return _classic_topic(text, _DOMAINS[domain], tenant, namespace, local)
    return TopicName(_DOMAINS[domain], tenant, namespace, local)


def _parse_any_topic(text: str) -> TopicName:
    if len(text) > TOPIC_TEXT_CHARACTERS_MAX:
        raise InvalidName(
            f"topic name {_shown(text)} has {len(text)} characters, "
            f"at most {TOPIC_TEXT_CHARACTERS_MAX} are allowed"
        )
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _parse_short_topic(text)
    domain = _DOMAINS.get(scheme.lower())
    if domain is None:
        raise InvalidName(
            f"topic name {_shown(text)} has the unknown domain {_shown(scheme)}, "
            "known are persistent, non-persistent, topic and segment"
        )
    if domain in _CLASSIC:
        tenant, namespace, local = _three_parts(text, rest.split("/"))
        return _checked_classic_topic(text, domain, tenant, namespace, local)
    tenant, namespace, local = _three_parts(text, rest.split("/", 2))
    return _scalable_topic(text, domain, tenant, namespace, local)


def _parse_short_topic(text: str) -> TopicName:
    parts = text.split("/")
    if len(parts) == 1:
        parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, text]
    elif len(parts) == 2:
        raise InvalidName(
            f"topic name {_shown(text)} has two parts, "
            "a short name is topic or tenant/namespace/topic"
        )
    tenant, namespace, local = _three_parts(text, parts)
    return _checked_classic_topic(text, Domain.PERSISTENT, tenant, namespace, local)


def _three_parts(text: str, parts: list[str]) -> tuple[str, str, str]:
    if len(parts) < 3:
        raise InvalidName(f"topic name {_shown(text)} is not domain://tenant/namespace/topic")
    if any(part == "" for part in parts):
        raise InvalidName(f"topic name {_shown(text)} has an empty part")
    if len(parts) > 3:
        raise InvalidName(
            f"topic name {_shown(text)} has {len(parts)} parts, names with a cluster in them "
            "are Pulsar's first version and are not supported"
        )
    tenant, namespace, local = parts
    return tenant, namespace, local


def _checked_classic_topic(
    text: str, domain: Domain, tenant: str, namespace: str, local: str
) -> TopicName:
    _check_part("tenant", tenant)
    _check_part("namespace", namespace)
    _check_local(text, local)
    return _classic_topic(text, domain, tenant, namespace, local)


def _classic_topic(text: str, domain: Domain, tenant: str, namespace: str, local: str) -> TopicName:
    base_name, partition = _split_partition(local)
    if partition is None:
        return TopicName(domain, tenant, namespace, local)
    if not base_name or base_name in _DOTS or base_name[0].isspace() or base_name[-1].isspace():
        raise InvalidName(f"topic name {_shown(text)} names a partition of nothing")
    if partition >= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidName(
            f"topic name {_shown(text)} names partition {partition}, "
            f"a topic has at most {PARTITIONS_PER_TOPIC_MAX}"
        )
    if _split_partition(base_name)[1] is not None:
        raise InvalidName(f"topic name {_shown(text)} names a partition of a partition")
    return TopicName(domain, tenant, namespace, base_name, partition)


def _scalable_topic(
    text: str, domain: Domain, tenant: str, namespace: str, local: str
) -> TopicName:
    _check_part("tenant", tenant)
    _check_part("namespace", namespace)
    segment: SegmentDescriptor | None = None
    base_name = local
    if domain is Domain.SEGMENT:
        base_name, _, descriptor = local.rpartition("/")
        segment = _parse_descriptor(text, descriptor)
        if not base_name:
            raise InvalidName(f"topic name {_shown(text)} names a segment of nothing")
        # Measured in canonical form: the given spelling may be shorter or longer.
        _check_length(text, f"{base_name}/{segment.text}")
    _check_local(text, base_name)
    if any(not part or part in _DOTS for part in base_name.split("/")):
        raise InvalidName(f"topic name {_shown(text)} has an empty part, or one that is only dots")
    if _split_partition(base_name)[1] is not None:
        raise InvalidName(
            f"topic name {_shown(text)} has a partition suffix, a scalable topic has segments"
        )
    return TopicName(domain, tenant, namespace, base_name, None, segment)


def _parse_descriptor(text: str, descriptor: str) -> SegmentDescriptor:
    match = _DESCRIPTOR.fullmatch(descriptor)
    if match is None:
        raise InvalidName(
            f"topic name {_shown(text)} does not end in a segment descriptor like 0000-7fff-3"
        )
    start, end, segment_id = int(match[1], 16), int(match[2], 16), int(match[3])
    if start > end:
        raise InvalidName(f"topic name {_shown(text)} names a segment that ends before it starts")
    if segment_id > SEGMENT_ID_MAX:
        raise InvalidName(f"topic name {_shown(text)} has a segment id beyond 63 bits")
    return SegmentDescriptor(start, end, segment_id)


def _split_partition(local: str) -> tuple[str, int | None]:
    base_name, separator, digits = local.rpartition(PARTITION_SUFFIX)
    if not separator or _DECIMAL.fullmatch(digits) is None:
        return local, None
    number = int(digits)
    return (local, None) if number > _INT32_MAX else (base_name, number)


def _check_part(what: str, text: str) -> None:
    if not text:
        raise InvalidName(f"{what} name {text!r} is empty")
    if len(text) > NAME_PART_BYTES_MAX:
        raise InvalidName(
            f"{what} name {_shown(text)} has {len(text)} characters, "
            f"at most {NAME_PART_BYTES_MAX} are allowed"
        )
    if _PART.fullmatch(text) is None:
        raise InvalidName(
            f"{what} name {_shown(text)} has a character other than "
            "a-z, A-Z, 0-9 and '_', '-', '=', ':', '.'"
        )
    if text in _DOTS:
        raise InvalidName(f"{what} name {text!r} is only dots, it would not survive in a path")


def _check_local(text: str, local: str) -> None:
    if _UNPRINTABLE.search(local):
        raise InvalidName(f"topic name {_shown(text)} has a control character")
    if local != local.strip():
        raise InvalidName(f"topic name {_shown(text)} has white space at an end of its last part")
    if local in _DOTS:
        raise InvalidName(f"topic name {_shown(text)} is only dots, it would not survive in a path")
    _check_length(text, local)


def _check_length(text: str, local: str) -> None:
    size_bytes = len(local.encode("utf-8", "surrogatepass"))
    if size_bytes > TOPIC_LOCAL_NAME_BYTES_MAX:
        raise InvalidName(
            f"topic name {_shown(text)} has {size_bytes} bytes behind its namespace, "
            f"at most {TOPIC_LOCAL_NAME_BYTES_MAX} are allowed"
        )


def _shown(text: str) -> str:
    """Return ``text`` quoted and escaped for a message, its end left out when it is long."""
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return ascii(text)
    return f"{text[:_SHOWN_CHARACTERS_MAX]!a}..."
