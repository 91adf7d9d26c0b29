"""Settings classes: frozen dataclasses whose methods are not generated.

For each class, ``dataclasses`` writes the source of a constructor, of comparisons and of what keeps
it frozen, and compiles it: 2 to 3 ms for the settings of a role, which is as much as 80 pods cost.
Here the methods are written once, for all of them. To the type checker it is a dataclass.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["settings_class"]

if TYPE_CHECKING:
    from dataclasses import dataclass as settings_class
else:
    _C = TypeVar("_C", bound=type)

    def settings_class(*, frozen: bool, kw_only: bool):
        """Make a class one of settings; its fields are given by name and do not change."""
        assert frozen, "settings do not change"
        assert kw_only, "settings are given by name"

        def made(cls: _C) -> _C:
            for name, method in _METHODS.items():
                setattr(cls, name, method)
            return dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)

        return made


def _init(self: Any, **values: Any) -> None:
    state = self.__dict__
    for field in dataclasses.fields(self):
        name = field.name
        if name in values:
            state[name] = values.pop(name)
        elif field.default is not dataclasses.MISSING:
            state[name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            state[name] = field.default_factory()
        else:
            raise TypeError(f"{type(self).__name__} needs {name!r}")
    if values:
        raise TypeError(f"{type(self).__name__} has no {', '.join(map(repr, values))}")
    check = getattr(self, "__post_init__", None)
    if check is not None:
        check()


def _set(self: Any, name: str, *_: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of {type(self).__name__}")


def _equal(self: Any, other: object) -> bool:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__.items()))


def _shown(self: Any) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
    return f"{type(self).__name__}({fields})"


_METHODS = {
    "__init__": _init,
    "__setattr__": _set,
    "__delattr__": _set,
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _shown,
}
