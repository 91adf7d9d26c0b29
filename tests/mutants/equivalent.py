"""Machine-made mutants that change nothing that anybody could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "stretto/ledger/ledger.lua want: if record and not was[uid] then: and → or": (
        "a pod without a record is thought to be among the bound, where it is deleted in vain"
    ),
    "stretto/ledger/ledger.lua adopt: while i <= #record do: <= → <": (
        "what is left out is an account at the end of a record that nothing is charged on"
    ),
}
"""By :attr:`MachineMutant.key`."""
