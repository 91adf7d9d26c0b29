"""Command-line flags from settings dataclasses: one definition of a setting, its text and its
default.

A field becomes ``--its-name``. Its metadata may hold ``help`` (the text), ``flag`` (another name)
and ``env`` (an environment variable that gives the default). Tuples of strings are repeatable
flags.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import math
import os
import pathlib
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from stretto.model.errors import OperatorError

S = TypeVar("S")
KINDS: dict[type, str] = {int: "a whole number", float: "a number"}
MAX_SHOWN = 60
"""Characters of a wrong value that are repeated."""


class FlagError(OperatorError):
    """A flag or an environment variable that cannot be read."""


def flag_of(field: dataclasses.Field[Any]) -> str:
    """The long option of a settings field."""
    return "--" + str(field.metadata.get("flag", field.name.replace("_", "-")))


def plain_type(hint: Any) -> Any:
    """The type that a text is converted to: ``X | None`` reads as X."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        return choices[0]
    return hint


def shown(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, tuple | list):
        return ", ".join(map(shown, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, pathlib.Path) and value.is_relative_to(pathlib.Path.home()):
        return str("~" / value.relative_to(pathlib.Path.home()))
    return str(value)


def default_text(field: dataclasses.Field[Any]) -> str:
    """The default, as --help shows it."""
    if field.default is not dataclasses.MISSING and field.default not in (None, "", ()):
        return f" (default {shown(field.default)})"
    return ""


@functools.cache
def types_of(settings: type[Any]) -> dict[str, Any]:
    """The types of the fields; they are written as strings, and each has to be compiled."""
    return typing.get_type_hints(settings)


def add_flags(
    parser: argparse.ArgumentParser, settings: type[Any], *, skip: frozenset[str] = frozenset()
) -> None:
    """Add a flag for each field of the settings class."""
    hints = types_of(settings)  # type: ignore[arg-type]  # (a class is hashable)
    for field in dataclasses.fields(settings):
        if field.name in skip:
            continue
        hint = plain_type(hints[field.name])
        text = str(field.metadata.get("help", "")).replace("%", "%%") + default_text(field)
        if env := field.metadata.get("env"):
            text += f" [env {env}]"
        options: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": text}
        if hint is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif typing.get_origin(hint) in (tuple, frozenset, list):
            options["action"] = "append"
            options["metavar"] = "VALUE"
        elif isinstance(hint, type) and issubclass(hint, enum.Enum):
            options["choices"] = [member.value for member in hint]
        else:
            options["metavar"] = {int: "N", float: "N", pathlib.Path: "PATH"}.get(hint, "TEXT")
        parser.add_argument(flag_of(field), **options)


def convert(*, text: Any, hint: Any, flag: str) -> Any:
    """A flag's text as the field's type.

    Raises:
        FlagError: the text does not read as that type.
    """
    hint = plain_type(hint)
    origin = typing.get_origin(hint)
    if origin in (tuple, frozenset, list):
        item = typing.get_args(hint)[0]
        values = text if isinstance(text, list) else [text]
        return origin(convert(text=value, hint=item, flag=flag) for value in values)
    if hint is bool:
        return text if isinstance(text, bool) else str(text).lower() in ("1", "true", "yes", "on")
    try:
        value = hint(text)
    except (ValueError, TypeError):
        value = math.nan
    if isinstance(value, float) and not math.isfinite(value):
        wanted = KINDS.get(hint) or f"one of {', '.join(map(shown, hint))}"
        raise FlagError(f"{flag} {str(text)[:MAX_SHOWN]!r}: not {wanted}")
    return value


def settings_from(
    args: argparse.Namespace,
    settings: type[S],
    *,
    environ: Mapping[str, str] | None = None,
    **fixed: Any,
) -> S:
    """Build the settings from parsed flags, then environment variables, then defaults.

    Raises:
        FlagError: a value does not read as its type, or the settings refuse it.
    """
    environ = os.environ if environ is None else environ
    hints = types_of(settings)  # type: ignore[arg-type]  # (a class is hashable)
    values: dict[str, Any] = dict(fixed)
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        if field.name in fixed:
            continue
        env = field.metadata.get("env")
        if hasattr(args, field.name):
            text, source = getattr(args, field.name), flag_of(field)
        elif env and environ.get(env):
            text, source = environ[env], env
        else:
            continue
        values[field.name] = convert(text=text, hint=hints[field.name], flag=source)
    try:
        return settings(**values)
    except (ValueError, TypeError) as error:
        raise FlagError(str(error)) from None
