"""Plots as inline SVG: no script, no font, no file from elsewhere.

Colours are classes, so that the page's style can change them for a dark screen. Every plot says
its unit on the axis and names its lines beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from stretto.workload.measures import percentile

WIDTH = 640
HEIGHT = 240
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 28, 36


class Line(NamedTuple):
    """A line of a plot: name, the class of its colour (a, b or c), y values at x = 0, 1, 2 …"""

    name: str
    colour: str
    values: Sequence[float]


def nice_step(span: float, *, steps: int = 4) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a span into about so many."""
    if span <= 0:
        return 1.0
    raw = span / steps
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)


def short(value: float) -> str:
    """A number as people write it: 1,234, 0.25, 12k."""
    if value >= 10_000:
        return f"{value / 1000:,.0f}k" if value < 1e7 else f"{value / 1e6:,.0f}M"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.3g}"


class _Canvas:
    """Maps values to pixels and collects marks."""

    def __init__(self, *, x_max: float, y_max: float, label: str) -> None:
        self._x_max = x_max or 1.0
        self._y_max = y_max or 1.0
        self._label = label
        self._marks: list[str] = []

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self._x_max

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value / self._y_max, 1.0)

    def add(self, mark: str) -> None:
        self._marks.append(mark)

    def text(self, x: float, y: float, text: str, *, anchor: str = "middle", css: str = "") -> None:
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">'
            f"{escape(text)}</text>"
        )

    def grid(self, y_step: float) -> None:
        """Horizontal lines with numbers; the label above them."""
        count = round(self._y_max / y_step)
        for i in range(count + 1):
            y = self.y(i * y_step)
            css = "axis" if i == 0 else "grid"
            self.add(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="{css}"/>'
            )
            self.text(LEFT - 8, y + 4, short(i * y_step), anchor="end")
        self.text(LEFT - 44, 14, self._label, anchor="start")

    def curve(self, points: Sequence[tuple[float, float]], css: str) -> None:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.add(f'<polyline points="{path}" class="line {css}"/>')

    def svg(self, title: str) -> str:
        marks = "\n".join(self._marks)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">\n'
            f"{marks}\n</svg>"
        )


def _ceiling(largest: float) -> tuple[float, float]:
    """(axis maximum, step) for values up to ``largest``."""
    step = nice_step(max(largest, 1e-9))
    return math.ceil(max(largest, 1e-9) / step - 1e-9) * step, step


def _thinned(values: Sequence[float], limit: int = 600) -> list[tuple[float, float]]:
    """Points (index, value), at most about ``limit``: the largest of each stretch is kept."""
    stride = max(1, math.ceil(len(values) / limit))
    return [(i, max(values[i : i + stride])) for i in range(0, len(values), stride)]


def over_time(title: str, lines: Sequence[Line], *, unit: str) -> str:
    """Values for each second of the run."""
    seconds = max((len(line.values) for line in lines), default=1)
    largest = max((max(line.values, default=0) for line in lines), default=0)
    y_max, y_step = _ceiling(largest)
    canvas = _Canvas(x_max=max(seconds - 1, 1), y_max=y_max, label=unit)
    canvas.grid(y_step)
    x_step = max(1.0, nice_step(seconds, steps=6))
    for i in range(int((seconds - 1) / x_step) + 1):
        canvas.text(canvas.x(i * x_step), HEIGHT - BOTTOM + 16, short(i * x_step))
    canvas.text(WIDTH - RIGHT, HEIGHT - 4, "seconds since the first creation", anchor="end")
    for line in lines:
        canvas.curve(_thinned(line.values), line.colour)
    _legend(canvas, lines)
    return canvas.svg(title)


def _legend(canvas: _Canvas, lines: Sequence[Line]) -> None:
    x = float(WIDTH - RIGHT)
    for line in reversed(lines):
        canvas.text(x, 14, line.name, anchor="end")
        x -= 7.0 * len(line.name) + 8
        canvas.add(
            f'<line x1="{x - 16:.1f}" x2="{x:.1f}" y1="10" y2="10" class="line {line.colour}"/>'
        )
        x -= 32


def distribution(title: str, ascending: Sequence[float], *, unit: str) -> str:
    """Which share of the values lies below x, x on a logarithmic scale."""
    low = max(ascending[0], 0.1) if ascending else 0.1
    high = max(ascending[-1], low * 10) if ascending else 1.0
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) - 1e-9)
    canvas = _Canvas(x_max=max(last - first, 1), y_max=100, label="% of pods")
    canvas.grid(25)
    for power in range(first, last + 1):
        x = canvas.x(power - first)
        canvas.add(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="grid"/>'
        )
        canvas.text(x, HEIGHT - BOTTOM + 16, short(10.0**power))
    canvas.text(WIDTH - RIGHT, HEIGHT - 4, unit, anchor="end")
    if ascending:
        points = [
            (math.log10(max(percentile(ascending, p), 10.0**first)) - first, p)
            for p in [i / 2 for i in range(1, 200)] + [99.9, 100.0]
        ]
        canvas.curve([(points[0][0], 0.0), *points], "a")
        for percent in (50, 99):
            value = percentile(ascending, percent)
            x = math.log10(max(value, 10.0**first)) - first
            canvas.add(
                f'<circle cx="{canvas.x(x):.1f}" cy="{canvas.y(percent):.1f}" r="4" class="dot a"/>'
            )
            anchor, shift, down = ("start", 8, 14) if percent == 50 else ("end", 4, 22)
            canvas.text(
                canvas.x(x) + shift,
                canvas.y(percent) + down,
                f"p{percent} {short(value)}",
                anchor=anchor,
            )
    return canvas.svg(title)


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """Horizontal bars with their numbers."""
    row, left = 26, 150
    height = row * max(len(values), 1) + 28
    largest = max((value for _, value in values), default=0) or 1.0
    marks = [f'<text x="0" y="14" text-anchor="start">{escape(unit)}</text>']
    for i, (name, value) in enumerate(values):
        y = 26 + i * row
        width = (WIDTH - left - 80) * value / largest
        marks.append(
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name[:22])}</text>'
            f'<rect x="{left}" y="{y}" width="{max(width, 1):.1f}" height="18" rx="2" '
            f'class="bar a"/><text x="{left + width + 8:.1f}" y="{y + 13}" '
            f'text-anchor="start">{escape(short(value))}</text>'
        )
    body = "\n".join(marks)
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return f"{head}\n{body}\n</svg>"
