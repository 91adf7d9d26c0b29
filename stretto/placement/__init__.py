"""Placement: filters and scores of kube-scheduler over the snapshot's columns, and the choice among
nodes.

``kernel.Kernel`` is the way in; ``profiles`` selects and weighs the ``plugins``. A shard places
with it, the Binder re-checks with it. NumPy and plain types only: no clock, no randomness, no I/O.
"""
