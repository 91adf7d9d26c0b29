"""All 49 rows, registered by being imported."""

from tests.matrix import (
    rows_api,
    rows_binder,
    rows_ledger,
    rows_machine,
    rows_objects,
    rows_peers,
)
from tests.matrix.row import not_built

not_built(29, "Two As, one lagging", "needs a second kube-apiserver; see binder/test_takeover")
not_built(42, "PDB spent (429), two PDBs (500) on eviction", "see e2e/test_disruption_budgets")
not_built(44, "Cert expired / CA rotated / token rotated", "see kube/test_credentials")

__all__ = [
    "rows_api", "rows_binder", "rows_ledger", "rows_machine", "rows_objects", "rows_peers",
]  # fmt: skip
