"""The Binder: the single point of commit (design §3, §5).

Brains: ``cluster`` (authoritative state and its deltas), ``log`` (the versioned log that everybody
follows), ``proposals`` and ``commit`` (what a batch of them gets), ``bindings`` (a reservation's
way to its bind, or back), ``outcomes`` (what the dispatcher is told until it acknowledges). Shells
around them: ``watches``, ``committer``, ``executor``, ``server``, ``recovery``, ``process``.
"""
