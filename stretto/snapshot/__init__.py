"""The picture of the cluster at a version: columns over node rows, and the deltas that advance it
(design §4).

``delta`` is what travels; ``columns.Snapshot`` is what it is applied to, at the Binder and at every
shard alike. The other modules are its parts: resource, label, port, image and pod tables, and the
log of changed rows.
"""
