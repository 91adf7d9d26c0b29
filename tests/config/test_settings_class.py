"""Settings behave as the frozen dataclasses that they are to the type checker."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stretto.config.settings_class import settings_class


@settings_class(frozen=True, kw_only=True)
class Base:
    """With a check of its own."""

    name: str
    size: int = 3
    tags: tuple[str, ...] = dataclasses.field(default_factory=lambda: ("a", "b"))

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("too small")


@settings_class(frozen=True, kw_only=True)
class Derived(Base):
    """Another default, and another field."""

    size: int = 5
    more: bool = False


def test_fields_are_given_by_name_and_have_defaults() -> None:
    assert dataclasses.asdict(Base(name="x")) == {"name": "x", "size": 3, "tags": ("a", "b")}
    derived = Derived(name="x", more=True)
    assert (derived.size, derived.tags, derived.more) == (5, ("a", "b"), True)
    assert [field.name for field in dataclasses.fields(Derived)] == ["name", "size", "tags", "more"]
    assert dataclasses.replace(derived, size=7) == Derived(name="x", size=7, more=True)


def test_what_a_dataclass_refuses_is_refused() -> None:
    anything: Any = Derived
    for wrong in ({}, {"name": "x", "colour": 1}):
        with pytest.raises(TypeError):
            anything(**wrong)
    with pytest.raises(TypeError):
        anything("x")
    with pytest.raises(ValueError, match="too small"):
        Derived(name="x", size=-1)
    with pytest.raises(ValueError, match="too small"):
        dataclasses.replace(Derived(name="x"), size=-1)


def test_settings_do_not_change() -> None:
    made: Any = Derived(name="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.size = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.size
    assert made.size == 5


def test_equal_settings_are_equal() -> None:
    assert Derived(name="x") == Derived(name="x", size=5)
    assert hash(Derived(name="x")) == hash(Derived(name="x", size=5))
    assert Derived(name="x") != Derived(name="y")
    assert Base(name="x", size=5) != Derived(name="x")
    assert repr(Base(name="x")) == "Base(name='x', size=3, tags=('a', 'b'))"
