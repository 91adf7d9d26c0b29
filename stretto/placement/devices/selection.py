"""Which devices classes and requests select, remembered per expression and device content."""

from __future__ import annotations

import itertools

from stretto.model.devices import DeviceRow
from stretto.placement.devices.inventory import Device

_REMEMBERED = 1 << 18
"""Answers that are kept: some 30 MB."""


class SelectionError(ValueError):
    """A selector that does not compile or fails on a device; the text follows the selector's
    number."""


class Selection:
    """Answers of selectors; devices that selectors cannot tell apart have one content number."""

    def __init__(self) -> None:
        self._contents: dict[tuple[object, ...], int] = {}
        self._numbers = itertools.count()
        self._answers: dict[tuple[str, int], bool | str] = {}

    def content(self, driver: str, row: DeviceRow) -> int:
        """The number of what selectors see of a device, and of what else a choice depends on."""
        key = (
            driver, row.attributes, row.versions, row.capacity, row.allow_multiple, row.consumes,
            row.binds_to_node, row.binding_conditions, row.binding_failures,
        )  # fmt: skip
        known = self._contents.get(key)
        if known is None:
            if len(self._contents) >= _REMEMBERED:
                self._contents.clear()  # numbers are not used again, so this costs work only
            known = self._contents[key] = next(self._numbers)
        return known

    def selects(self, expressions: tuple[str, ...], device: Device) -> int:
        """-1 when all expressions select the device, else the number of the first that does not.

        Raises:
            SelectionError: an expression cannot be asked; its args are (number, text).
        """
        for i, expression in enumerate(expressions):
            key = (expression, device.content)
            answer = self._answers.get(key)
            if answer is None:
                if len(self._answers) >= _REMEMBERED:
                    self._answers.clear()
                answer = self._answers[key] = _ask(expression, device)
            if isinstance(answer, str):
                runtime = answer.startswith("CEL runtime error")
                where = f"selector #{i} on device {device.id}" if runtime else f"selector #{i}"
                raise SelectionError(f"{where}: {answer}")
            if not answer:
                return i
        return -1


def _ask(expression: str, device: Device) -> bool | str:
    # Loaded with the first selector: most deployments never need the library's 20 MB.
    from stretto.cel.selectors import DeviceFacts, SelectorError, selector_of

    selector = selector_of(expression)
    if selector.problem:
        return f"CEL compile error: {selector.problem}"
    row = device.row
    facts = DeviceFacts(
        driver=device.id.driver,
        attributes=row.attributes,
        versions=row.versions,
        capacity=tuple((c.name, c.value) for c in row.capacity),
        allow_multiple=row.allow_multiple,
    )
    try:
        return selector.matches(facts)
    except SelectorError as error:
        return f"CEL runtime error: {error}"
