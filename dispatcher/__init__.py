"""The dispatcher: pending pods become units, shards get them, what comes back decides what is next.

Brain: :mod:`~dispatcher.machine` and what it is made of. Shell: :mod:`~dispatcher.process` and what
it starts.
"""
