"""Reading the file behind ``--config``: a KubeSchedulerConfiguration in YAML or JSON.

All roles of a deployment get the same file; a digest of what decides is exchanged when they greet,
so that a shard never proposes by other rules than the Binder checks by.
"""

from __future__ import annotations

import logging
from pathlib import Path

from stretto.config.common import ConfigError, RoleSettings
from stretto.config.own_plugins import installed
from stretto.placement.configuration import (
    Configuration,
    default_configuration,
    read_configuration,
)
from stretto.placement.strict import ProfileError

logger = logging.getLogger(__name__)
DEFAULT_NAMES = ("stretto",)
MAX_BYTES = 4 << 20
"""A configuration is some kilobytes; more is a wrong file."""


def load(path: Path) -> object:
    """The one document of a YAML or JSON file.

    Raises:
        ConfigError: it cannot be read, or is neither.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"--config {path}: {len(data)} bytes are no configuration")
    # Only a process that was given a file carries the parser.
    from stretto.config.yaml_text import parsed

    try:
        return parsed(data)
    except ValueError as error:
        raise ConfigError(f"--config {path}: {error}") from None


def gates_of(given: tuple[str, ...]) -> dict[str, bool]:
    """Feature gates from ``--feature-gates Name=true``; several may be joined by commas.

    Raises:
        ConfigError: one does not read as Name=true or Name=false.
    """
    found: dict[str, bool] = {}
    for part in ",".join(given).split(","):
        name, _, value = part.strip().partition("=")
        if not name and not value:
            continue
        if value not in ("true", "false"):
            raise ConfigError(f"--feature-gates {part[:80]!r}: take Name=true or Name=false")
        found[name] = value == "true"
    return found


def configuration_of(
    path: Path | None, *, names: tuple[str, ...] = (), feature_gates: tuple[str, ...] = ()
) -> Configuration:
    """The configuration of a role: that of the file, or the defaults under ``names``.

    Raises:
        ConfigError: the file cannot be used, or names are given beside it.
    """
    gates = gates_of(feature_gates)
    if path is None:
        try:
            return default_configuration(names or DEFAULT_NAMES, gates=gates)
        except ProfileError as error:
            raise ConfigError(f"--feature-gates: {error}") from None
    if names not in ((), DEFAULT_NAMES):
        raise ConfigError(
            "--scheduler-name and --config exclude each other: the names are those of its profiles"
        )
    try:
        own, versions = installed()
        found = read_configuration(load(path), gates=gates, own=own, installed=versions)
    except ProfileError as error:
        raise ConfigError(f"--config {path}: {error}") from None
    for profile in found.profiles:
        if "NodeResourcesFit" not in profile.points["filter"]:
            raise ConfigError(
                f"--config {path}: profile {profile.name}: the filter NodeResourcesFit cannot be "
                "off, because the ledger never gives more of a node than it has"
            )
    if found.without_effect:
        logger.info("%s: without effect here: %s", path, ", ".join(found.without_effect))
    return found


def configuration_of_role(settings: RoleSettings, *, names: tuple[str, ...]) -> Configuration:
    """:func:`configuration_of` for the settings of a role."""
    return configuration_of(settings.config, names=names, feature_gates=settings.feature_gates)
