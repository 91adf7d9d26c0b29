"""Own plugins that installed packages bring: the entry point group ``stretto.plugins``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from stretto.config.common import ConfigError
from stretto.placement.extension import ENTRY_POINTS, OwnPlugin, points_of
from stretto.placement.registry import DEFAULT_ORDER

Found = dict[str, type[OwnPlugin]]


def installed() -> tuple[Found, str]:
    """(plugin classes by name, "package version" of each, for the digest).

    Raises:
        ConfigError: one cannot be loaded or is no plugin; names its package.
    """
    found: Found = {}
    versions = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        package = _package(point)
        if point.name in found or point.name in DEFAULT_ORDER:
            raise ConfigError(f"plugin {point.name} of {package}: the name is taken; uninstall one")
        found[point.name] = _loaded(point, package)
        versions.append(f"{point.name}={package}")
    return found, ",".join(versions)


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _loaded(point: EntryPoint, package: str) -> type[OwnPlugin]:
    try:
        kind = point.load()
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"plugin {point.name} of {package}: cannot be loaded: {text}") from None
    if not isinstance(kind, type) or not issubclass(kind, OwnPlugin):
        raise ConfigError(f"plugin {point.name} of {package}: is no subclass of OwnPlugin")
    if getattr(kind, "name", None) != point.name:
        raise ConfigError(f"plugin {point.name} of {package}: its class has another name")
    if not points_of(kind):
        raise ConfigError(f"plugin {point.name} of {package}: has neither mask, scores nor reject")
    return kind
