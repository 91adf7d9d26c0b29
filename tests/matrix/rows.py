"""All 49 rows, registered by being imported."""

from tests.matrix import (
    rows_api,
    rows_binder,
    rows_evictions,
    rows_ledger,
    rows_machine,
    rows_objects,
    rows_peers,
)

__all__ = [
    "rows_api", "rows_binder", "rows_evictions", "rows_ledger", "rows_machine", "rows_objects",
    "rows_peers",
]  # fmt: skip
