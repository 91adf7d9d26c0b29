"""A shard: holds a snapshot of the cluster, decides where units go, proposes to the Binder.

It holds no credentials of any kind: units come from the dispatcher, the snapshot and the verdicts
from the Binder, and a proposal binds nothing until the Binder has checked and reserved it. So any
number of shards may run, come and go.

The brain (:mod:`~scheduler_shard.worker` with :mod:`~scheduler_shard.desk`,
:mod:`~scheduler_shard.overlay`, :mod:`~scheduler_shard.picture` …)
is synchronous and knows neither clock nor network; :mod:`~scheduler_shard.streams` moves messages
between it and the three streams.
"""
