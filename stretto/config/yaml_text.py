"""YAML (or JSON) text as plain values, stricter than the plain loader."""

from __future__ import annotations

from typing import Any

import yaml


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Refuses what the plain loader lets pass: a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are all different."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def parsed(data: bytes) -> object:
    """The one document of the text.

    Raises:
        ValueError: it is no YAML, holds several documents, or a key is given twice; one line.
    """
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506  a safe loader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"is no YAML or JSON: {text}") from None
