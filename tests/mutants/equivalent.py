"""Machine-made mutants that change nothing that anybody could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
"""By :attr:`MachineMutant.key`."""
