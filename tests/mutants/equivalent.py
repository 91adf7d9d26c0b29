"""Machine-made mutants that change nothing that anybody could see, each with its reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "stretto/ledger/ledger.lua want: if record and not was[uid] then: and → or": (
        "a pod without a record is thought to be among the bound, where it is deleted in vain"
    ),
    "stretto/ledger/ledger.lua adopt: while i <= #record do: <= → <": (
        "what is left out is an account at the end of a record that nothing is charged on"
    ),
    "stretto/ledger/ledger.lua release: while i <= #record do: <= → <": (
        "what is left out is an account at the end of a record that nothing is charged on"
    ),
    "stretto/ledger/ledger.lua adopt: if applied == 1 and code ~= 5 and code ~= 7 then "
    "dirty_pods[uid] = true end: and → or": (
        "a pod that has not changed is written once more as it is"
    ),
}
"""By :attr:`MachineMutant.key`."""
