"""Access to the Kubernetes API: raw JSON over HTTP, typed where it is read, never retried behind a
caller's back.

The one place that imports the official client (its ``kubernetes.aio`` half), and that only where
an HTTP proxy is in the way: its HTTP session costs five times a request on connections of our own,
and loading it half of a role's start. Bodies are decoded here, by msgspec, because the client's
models cost thirty times as much and misread the reply to a Binding (it is a ``Status``).

* :mod:`~stretto.kube.config`: where the API server is and how to identify ourselves to it.
* :mod:`~stretto.kube.transport`: a request or a watch, by one of two :mod:`~stretto.kube.ways`.
* :mod:`~stretto.kube.client`: one request at a time; :mod:`~stretto.kube.answers` says what a reply
  proves.
* :mod:`~stretto.kube.reflector`: a consistent list, then the watch, for ever;
  :mod:`~stretto.kube.sightings` holds its order rules.
* :mod:`~stretto.kube.lease`: leadership with a fencing epoch; :mod:`~stretto.kube.lease_keeper`
  keeps it.
* :mod:`~stretto.kube.events`: the slower lane for Event objects.

What a write that failed half-way means is never guessed: a time-out, a reset connection or a
cancelled task leaves it *unknown*, and the caller has to read before it acts.
"""
