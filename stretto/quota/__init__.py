"""Quota: a tree of queues, what each has used, and what follows for a pod that wants to be placed.

Brain only. The Binder counts, the dispatcher asks before it sends a unit out, shards and Binder ask
again before they place one; all of them with this code. What the fields mean: docs/quota.md.
"""
