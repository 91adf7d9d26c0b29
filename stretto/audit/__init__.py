"""The offline checker: what happened, from three independent logs, held against the invariants.

* the API server's own order of things, as a watch tells it (:mod:`stretto.audit.recorder`);
* the ledger's append-only file, effect by effect (:mod:`stretto.audit.ledger_log`);
* what the Binder says that it did (:mod:`stretto.telemetry.audit_log`).

Rules are plain functions over these, one module a log; :mod:`stretto.audit.checker` runs them all.
None of them uses the scheduler's code for sums. A history with a gap proves nothing and is called
*inconclusive*, never passed.
"""
