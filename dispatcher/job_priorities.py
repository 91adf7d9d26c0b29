"""The priority that a Job's pods will have, before there are any."""

from __future__ import annotations

from collections.abc import Mapping

from stretto.model.jobs import Template


class JobPriorities:
    """The cluster's PriorityClasses."""

    def __init__(self) -> None:
        self._values: Mapping[str, int] | None = None
        """By name; None: they cannot be read."""
        self._default = 0

    def tell(self, values: Mapping[str, int] | None, *, default: int) -> None:
        """The values of the classes, and the priority of pods that name none."""
        self._values, self._default = values, default

    def of(self, template: Template) -> int:
        """As the API server will set it."""
        if template.priority is not None:
            return template.priority
        if not template.priority_class:
            return self._default
        return (self._values or {}).get(template.priority_class, 0)

    def problem(self, template: Template) -> str:
        """Why the API server would not have such pods; '' if it would, or that is not known."""
        name = template.priority_class
        if name and self._values is not None and name not in self._values:
            return f"spec.template names a PriorityClass {name}, which does not exist"
        return ""
