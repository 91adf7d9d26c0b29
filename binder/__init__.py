"""The Binder: the single point of commit (design §3, §5).

Brain: :mod:`~binder.machine` and what it is made of. Shell: :mod:`~binder.process` and what it
starts; ``recovery`` opens, ``committer`` is the loop that all commits and ledger writes go through.

The cluster as the API has it comes in (watches, object_watches) and becomes the picture (cluster)
and its steps (log). Proposals wait in their order (order); a batch of them is held against the
picture (commit, fitting) and then against the ledger. What is reserved binds its claims (prebind),
is bound (bindings, carried out by executor), and ends (endings); the dispatcher hears of it until
it acknowledges (outcomes, publisher). What the ledger ought to say is in ledger_book, rooms and
charges. Beside that: victims go in preemptions (evictor), who waited too long has stakes, and what
queues have used is in quota.
"""
