"""Service-level settings that change without a restart: their names, their check, their values.

    default ◀─ override, one for the cluster

Names are those of Pulsar's ``broker.conf``, and values are texts, as in its dynamic configuration.
``resolve`` refuses what makes no sense: it is for whoever sets an override. ``lenient`` is for
whoever is sent overrides, which may be of a later release.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from nextgen.kernel.governance import auto_scale_policy, balance_settings, client_limits
from nextgen.kernel.governance.auto_scale_policy import (
    AUTO_SCALE_FIELDS,
    DEFAULT_AUTO_SCALE,
    AutoScalePolicy,
    InvalidAutoScale,
)
from nextgen.kernel.governance.balance_settings import (
    BALANCE_NUMBERS,
    BALANCE_SWITCHES,
    DEFAULT_BALANCE,
    BalanceSettings,
)
from nextgen.kernel.governance.client_limits import (
    LIMIT_NUMBERS,
    LIMIT_SETTINGS,
    LIMIT_SUMMARIES,
    LIMIT_SWITCHES,
    NO_BROKER_LIMITS,
    NO_LIMITS,
    BrokerLimits,
    TopicLimits,
)
from nextgen.kernel.limits.placement import (
    NODE_LOST_SECONDS,
    NODE_LOST_SECONDS_MAX,
    SETTING_TEXT_CHARACTERS_MAX,
    SHARD_COMMANDS_SETTING_MAX,
    SHARD_TOPICS_SETTING_MAX,
)
from nextgen.kernel.limits.scalable import (
    AUTO_SCALE_TICK_MS,
    AUTO_SCALE_TICK_MS_MAX,
    AUTO_SCALE_TICK_MS_MIN,
    SEGMENT_LOAD_CHANGE,
    SEGMENT_LOAD_REPORT_MS,
    SEGMENT_LOAD_REPORT_MS_MAX,
    SEGMENT_LOAD_REPORT_MS_MIN,
)


class InvalidSetting(ValueError):
    """A setting makes no sense. The message begins with its name."""


class UnknownSetting(InvalidSetting):
    """There is no dynamic setting of that name."""


@dataclass(frozen=True, slots=True)
class LoadReporting:
    """How brokers report the loads of the segments of scalable topics."""

    interval_ms: int = SEGMENT_LOAD_REPORT_MS
    """Between two measurements."""
    rate_change: float = SEGMENT_LOAD_CHANGE
    """The part of a recorded rate by which it has to move before it is recorded again."""


DEFAULT_LOAD_REPORTING: Final = LoadReporting()


@dataclass(frozen=True, slots=True)
class ShardSizing:
    """How large shards become before they are split by themselves; 0: any size."""

    topics_max: int = 0
    commands_per_second_max: float = 0


DEFAULT_SHARD_SIZING: Final = ShardSizing()
"""Off: a split copies half a shard and adds replicas to nodes, which an operator should want."""


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """How the replicas of shards follow the shard nodes."""

    balance: bool = True
    """Whether replicas are placed on nodes without a request."""
    node_lost_ms: int = 1_000 * NODE_LOST_SECONDS
    """Silence after which a shard node counts as lost. 0: never."""


DEFAULT_REPLICAS: Final = ReplicaSettings()


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The settings with their values: defaults, overridden for the cluster."""

    auto_scale: AutoScalePolicy = DEFAULT_AUTO_SCALE
    """The policy of scalable topics where neither the namespace nor the topic has another."""
    auto_scale_interval_ms: int = AUTO_SCALE_TICK_MS
    """Between two looks at topics whose policies are not watched, and before another attempt."""
    load_reporting: LoadReporting = DEFAULT_LOAD_REPORTING
    balance: BalanceSettings = DEFAULT_BALANCE
    topic_limits: TopicLimits = NO_LIMITS
    """What clients may use of a topic where no policy says otherwise."""
    broker_limits: BrokerLimits = NO_BROKER_LIMITS
    shard_sizing: ShardSizing = DEFAULT_SHARD_SIZING
    replicas: ReplicaSettings = DEFAULT_REPLICAS


DEFAULT_SETTINGS: Final = ServiceSettings()

AUTO_SCALE_INTERVAL: Final = "scalableTopicAutoScaleIntervalSeconds"
LOAD_REPORT_INTERVAL: Final = "scalableTopicLoadReportIntervalSeconds"
LOAD_REPORT_CHANGE: Final = "scalableTopicLoadReportRateChangeThreshold"
SHARD_TOPICS_MAX: Final = "shardTopicsMax"
SHARD_COMMANDS_MAX: Final = "shardCommandsPerSecondMax"
REPLICAS_BALANCE: Final = "shardReplicasBalanceEnabled"
NODE_LOST_AFTER: Final = "shardNodeLostAfterSeconds"


def _service_name(field: str) -> str:
    """Return the name in ``broker.conf`` of a field of the policy."""
    if field == "enabled":
        return "scalableTopicAutoScaleEnabled"
    return f"scalableTopic{field[0].upper()}{field[1:]}"


_POLICY_FIELDS: Final = {_service_name(field): field for field in AUTO_SCALE_FIELDS}
_POLICY_NAMES: Final = {field: name for name, field in _POLICY_FIELDS.items()}
_POLICY_FIELD: Final = re.compile(rf"\b(?:{'|'.join(_POLICY_NAMES)})\b")

_AUTO_SCALE_ENABLED: Final = _POLICY_NAMES["enabled"]
_SWITCHES: Final = frozenset(
    {_AUTO_SCALE_ENABLED, REPLICAS_BALANCE, *BALANCE_SWITCHES, *LIMIT_SWITCHES}
)
_BALANCE: Final = (*BALANCE_SWITCHES, *BALANCE_NUMBERS)

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

_NUMBERS: Final[dict[str, tuple[float, float, float]]] = {
    AUTO_SCALE_INTERVAL: (
        AUTO_SCALE_TICK_MS / 1_000,
        AUTO_SCALE_TICK_MS_MIN / 1_000,
        AUTO_SCALE_TICK_MS_MAX / 1_000,
    ),
    LOAD_REPORT_INTERVAL: (
        SEGMENT_LOAD_REPORT_MS / 1_000,
        SEGMENT_LOAD_REPORT_MS_MIN / 1_000,
        SEGMENT_LOAD_REPORT_MS_MAX / 1_000,
    ),
    LOAD_REPORT_CHANGE: (SEGMENT_LOAD_CHANGE, 0, 1),
    SHARD_TOPICS_MAX: (0, 0, SHARD_TOPICS_SETTING_MAX),
    SHARD_COMMANDS_MAX: (0, 0, SHARD_COMMANDS_SETTING_MAX),
    NODE_LOST_AFTER: (NODE_LOST_SECONDS, 0, NODE_LOST_SECONDS_MAX),
    **LIMIT_NUMBERS,
}
"""Default, least and most of the settings that neither the policy nor the balance checks."""

_WHOLE_NUMBERS: Final = frozenset({SHARD_TOPICS_MAX, *LIMIT_NUMBERS})

_DEFAULTS: Final[dict[str, bool | float]] = {
    **{name: auto_scale_policy.default_of(field) for name, field in _POLICY_FIELDS.items()},
    **{name: default for name, (default, _, _) in _NUMBERS.items() if name not in LIMIT_NUMBERS},
    **{name: balance_settings.default_of(name) for name in _BALANCE},
    REPLICAS_BALANCE: DEFAULT_REPLICAS.balance,
    **LIMIT_SETTINGS,
}


def _text(value: bool | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if value == int(value) else str(value)


DEFAULT_TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {name: _text(value) for name, value in _DEFAULTS.items()}
)
"""The names of all dynamic settings with their defaults."""


SUMMARIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scalableTopicAutoScaleEnabled": "whether scalable topics are split and merged "
        "by themselves",
        "scalableTopicMaxSegments": "active segments beyond which none is split by itself",
        "scalableTopicMinSegments": "active segments below which none are merged by themselves",
        "scalableTopicMaxDagDepth": "merges behind a segment that is not merged again by itself",
        "scalableTopicSplitCooldownSeconds": "seconds from one split to the next",
        "scalableTopicMergeCooldownSeconds": "seconds from one merge to the next",
        "scalableTopicRebucketCooldownSeconds": "seconds from one change of entry buckets "
        "to the next",
        "scalableTopicMergeWindowSeconds": "seconds for which both of a pair have to be cold",
        "scalableTopicSplitMsgRateInThreshold": "messages published per second, above which a "
        "segment is split",
        "scalableTopicSplitBytesRateInThreshold": "the same in bytes",
        "scalableTopicSplitMsgRateOutThreshold": "messages dispatched per second, above which a "
        "segment is split",
        "scalableTopicSplitBytesRateOutThreshold": "the same in bytes",
        "scalableTopicSplitVsRebucketMinMsgRateInThreshold": "messages published per second, below "
        "which more consumers get entry buckets instead of segments",
        "scalableTopicMergeMsgRateInThreshold": "messages published per second, below which a "
        "segment is cold; 0: never",
        "scalableTopicMergeBytesRateInThreshold": "the same in bytes",
        "scalableTopicMergeMsgRateOutThreshold": "messages dispatched per second, below which a "
        "segment is cold; 0: never",
        "scalableTopicMergeBytesRateOutThreshold": "the same in bytes",
        AUTO_SCALE_INTERVAL: "seconds between two looks at topics whose policies are not watched, "
        "and before a refused operation is tried again",
        LOAD_REPORT_INTERVAL: "seconds between two measurements of a broker's segments; "
        "may have a fraction",
        LOAD_REPORT_CHANGE: "part of a recorded rate by which it has to move before it is "
        "recorded again",
        SHARD_TOPICS_MAX: "topics beyond which a shard is split by itself, and far below which two "
        "are merged; 0: never",
        SHARD_COMMANDS_MAX: "the same in commands a second",
        NODE_LOST_AFTER: "seconds of silence after which a shard node counts as lost and its "
        "replicas are placed elsewhere; 0: never",
        "loadBalancerEnabled": "whether units are moved to even out brokers",
        "loadBalancerSheddingEnabled": "the same: both have to be true",
        "loadBalancerSheddingIntervalMinutes": "minutes between two evaluations of the balance; "
        "may have a fraction",
        "loadBalancerSheddingGracePeriodMinutes": "minutes for which a unit that was moved is not "
        "moved again",
        "loadBalancerMaxMovesPerMinute": "moves of the whole cluster per minute",
        "loadBalancerStartPermille": "difference of a broker from its share, in thousandths, that "
        "begins a rebalance",
        "loadBalancerGoalPermille": "difference at which a rebalance ends",
        "loadBalancerBrokerOverloadedThresholdPercentage": "use of its machine, in percent, above "
        "which a broker gets no units",
        "loadBalancerIdleUnloadSeconds": "seconds without clients after which a unit leaves its "
        "broker; 0: never",
        REPLICAS_BALANCE: "whether replicas of shards are placed on shard nodes by themselves, as "
        "nodes come, go and are lost",
        **LIMIT_SUMMARIES,
    }
)
"""What each dynamic setting is, by name, for people."""


def problem(texts: Mapping[str, str]) -> str:
    """Return why ``texts`` may not be the overrides, beginning with a name; "" if they may."""
    try:
        resolve(texts)
    except InvalidSetting as error:
        return str(error)
    return ""


def resolve(texts: Mapping[str, str]) -> ServiceSettings:
    """Return the settings that are overridden by ``texts``, by name.

    Raises:
        UnknownSetting: There is no setting of a name.
        InvalidSetting: A value makes no sense, alone or together with the other settings.
    """
    values = _DEFAULTS | {name: _value(name, text) for name, text in texts.items()}
    refused = next(filter(None, [_out_of_bounds(name, values[name]) for name in _NUMBERS]), "")
    refused = refused or _problem_of_policy(values) or balance_settings.problem(values)
    if refused:
        raise InvalidSetting(refused)
    return _settings(values)


def lenient(texts: Mapping[str, str]) -> ServiceSettings:
    """Return the settings that are overridden by as much of ``texts`` as makes sense here.

    Names that are not known are ignored, and a number out of its bounds counts as not set. What
    makes no sense among the settings of splits and merges turns these off; the balance likewise.
    """
    values = dict(_DEFAULTS)
    for name in texts.keys() & _DEFAULTS.keys():
        try:
            values[name] = _value(name, texts[name])
        except InvalidSetting:
            values[name] = math.nan
        if _out_of_bounds(name, values[name]):
            values[name] = _DEFAULTS[name]
    if _problem_of_policy(values):
        values |= {name: _DEFAULTS[name] for name in _POLICY_FIELDS}
        values[_AUTO_SCALE_ENABLED] = False
    if balance_settings.problem(values):
        values |= {name: _DEFAULTS[name] for name in _BALANCE}
        values |= dict.fromkeys(BALANCE_SWITCHES, False)
    return _settings(values)


def runtime_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return every setting's value as text, by name: the override if there is one."""
    return {name: texts.get(name, default) for name, default in DEFAULT_TEXTS.items()}


def _settings(values: Mapping[str, Any]) -> ServiceSettings:
    """Return the settings with ``values``, which are checked already."""
    return ServiceSettings(
        auto_scale_policy.with_values(_policy_values(values)),
        round(1_000 * values[AUTO_SCALE_INTERVAL]),
        LoadReporting(
            round(1_000 * values[LOAD_REPORT_INTERVAL]), float(values[LOAD_REPORT_CHANGE])
        ),
        balance_settings.balance_of(values),
        client_limits.topic_limits_of(values),
        client_limits.broker_limits_of(values),
        ShardSizing(round(values[SHARD_TOPICS_MAX]), float(values[SHARD_COMMANDS_MAX])),
        ReplicaSettings(values[REPLICAS_BALANCE], round(1_000 * values[NODE_LOST_AFTER])),
    )


def _policy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {field: values[name] for name, field in _POLICY_FIELDS.items()}


def _problem_of_policy(values: Mapping[str, Any]) -> str:
    try:
        auto_scale_policy.with_values(_policy_values(values))
    except InvalidAutoScale as error:
        return _POLICY_FIELD.sub(lambda found: _POLICY_NAMES[found[0]], str(error))
    return ""


def _out_of_bounds(name: str, value: float) -> str:
    """Return why a setting of ``_NUMBERS`` may not have the value, "" if it may."""
    if name not in _NUMBERS:
        return ""
    _, least, most = _NUMBERS[name]
    if name in _WHOLE_NUMBERS and not (math.isnan(value) or float(value).is_integer()):
        return f"{name} is {value:g}, a whole number is needed"
    refused = f"{name} is {value:.15g}, {least:.15g} to {most:.15g} are allowed"
    return "" if least <= value <= most else refused


def _value(name: str, text: str) -> bool | float:
    """Return the value that a text is for a setting.

    Raises:
        UnknownSetting: There is no setting of this name.
        InvalidSetting: The text is none of its kind.
    """
    if name not in _DEFAULTS:
        raise UnknownSetting(f"{name} is no dynamic setting")
    if len(text) > SETTING_TEXT_CHARACTERS_MAX:
        raise InvalidSetting(
            f"{name} has {len(text)} characters, at most {SETTING_TEXT_CHARACTERS_MAX} may"
        )
    if name in _SWITCHES:
        if text.lower() not in ("true", "false"):
            raise InvalidSetting(f"{name} is neither true nor false")
        return text.lower() == "true"
    if not _NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        raise InvalidSetting(f"{name} is no number")
    return int(value) if value.is_integer() else value
