"""Load: where pods come from, how fast they come, what became of them, and the report.

``traces`` and ``node_traces`` read real clusters' data, ``synthetic`` makes pods and nodes up,
``arrivals`` says when; ``generator`` creates what is due through the API, ``observer`` watches it,
``load`` puts the two together and ``report`` writes what was found. Nothing here knows Stretto's
processes: the load generator works against any cluster and measures any scheduler.
"""
