"""Explore the protocol and its broken variants, and print what that gave: ``make model``."""

from __future__ import annotations

import sys
import time

from tests.protocol.model import Variant, explore
from tests.protocol.test_model import BROKEN


def main() -> int:
    """The table; 1 if the protocol as built goes wrong, or a broken variant does not."""
    surprises = 0
    safe = {"as built": Variant(), "as built, the ledger lost": Variant(loses_ledger=True)}
    for name, variant in {**safe, **BROKEN}.items():
        began = time.monotonic()
        result = explore(variant)
        surprises += bool(result.problem) == (name in safe)
        took = time.monotonic() - began
        verdict = result.problem or "safe, nothing left over"
        sys.stdout.write(f"{name:46} {result.states:8,} states {took:5.1f} s  {verdict}\n")
    return 1 if surprises else 0


if __name__ == "__main__":
    raise SystemExit(main())
