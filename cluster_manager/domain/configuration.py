"""The configuration: service-level settings that the operator has overridden.

Overrides are set all together. Each set has a version, one above the version before, and a request
that was made from an earlier version is refused. A setting that is not in the set has its default.

What is set must make sense alone and together with the defaults. A name that this release does not
know may stay if it was set before: the cluster may have been of a later release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.service_settings import (
    DEFAULT_TEXTS,
    InvalidSetting,
    UnknownSetting,
    resolve,
)
from nextgen.kernel.limits.cluster import STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import SETTINGS_MAX


@dataclass(frozen=True, slots=True)
class Configuration:
    """Overrides by Pulsar's name, as texts. The mapping is never changed in place."""

    version: int = 0
    """0: nothing was ever overridden."""

    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetConfiguration:
    """Replace all overrides. ``named`` is the number of names before duplicates were removed."""

    configuration: Configuration
    named: int


@dataclass(frozen=True, slots=True)
class ConfigurationSet:
    """These overrides hold from this event on."""

    configuration: Configuration


INITIAL = Configuration()


def decide(
    state: Configuration, command: SetConfiguration
) -> Accepted[ConfigurationSet] | Rejected:
    """Accept the next version of overrides if the settings make sense with them.

    The present overrides are accepted again, without an event.
    """
    configuration = command.configuration
    if configuration == state and configuration.version:
        return Accepted(())
    refused = _refused_shape(command) or _refused_version(state, configuration.version)
    refused = refused or _refused_settings(state, configuration)
    return refused or Accepted((ConfigurationSet(configuration),))


def evolve(_: Configuration, event: ConfigurationSet) -> Configuration:
    """Return the configuration after ``event``."""
    return event.configuration


def _refused_shape(command: SetConfiguration) -> Rejected | None:
    settings = command.configuration.settings
    if command.named != len(settings):
        return Rejected(RejectionCode.NOT_ALLOWED, "the configuration names a setting twice")
    if len(settings) > SETTINGS_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"the configuration has {len(settings)} settings, at most {SETTINGS_MAX} may",
        )
    return None


def _refused_version(state: Configuration, version: int) -> Rejected | None:
    if version == state.version + 1 and version <= STORED_INTEGER_MAX:
        return None
    return Rejected(
        RejectionCode.VERSION_MISMATCH,
        f"the present configuration is of version {state.version}, so the next is "
        f"{state.version + 1}: this is {version}",
    )


def _refused_settings(state: Configuration, configuration: Configuration) -> Rejected | None:
    given = {
        name: text
        for name, text in configuration.settings.items()
        if name in DEFAULT_TEXTS or state.settings.get(name) != text
    }
    try:
        resolve(given)
    except UnknownSetting as error:
        return Rejected(RejectionCode.NOT_FOUND, str(error))
    except InvalidSetting as error:
        return Rejected(RejectionCode.NOT_ALLOWED, str(error))
    return None
