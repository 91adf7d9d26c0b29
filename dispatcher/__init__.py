"""The dispatcher: pending pods become units, shards get them, what comes back decides what is next.

Brain: :mod:`~dispatcher.machine` and what it is made of. Shell: :mod:`~dispatcher.process` and what
it starts.

A pod is sighted (intake), joins the line of its shape (queue) or waits with its group (groups,
elections), has its turn (lanes), goes out (batches, shard_side) unless its shape is parked
(shape_cycle, wakeups), and is the Binder's (binder_side, outcomes) until it is bound or comes back.
Pods of very many parts go one at a time (slow_lane); who waits too long gets a stake (ladder), and
who would be found by nobody begins anew (auditor). What a pod waits for is told by conditions and
group_conditions. Jobs that have no pods yet wait in admission; quota is the gate for both.
"""
