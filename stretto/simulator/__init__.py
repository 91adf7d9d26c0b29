"""A simulated Kubernetes cluster over real HTTP: API server, kubelets, faults.

It answers as a kube-apiserver 1.37 does, as far as schedulers look: lists in pages, watches with
bookmarks and 410, preconditions on uid and resourceVersion, bindings, evictions, status patches,
leases, events. The same contract tests run against it and against the real one.

``api`` (any kind) and ``pods`` are plain classes over ``store`` and ``records``; ``kubelet`` is one
over the changes they tell; ``http_server``, ``kubelet_runner`` and ``cluster`` are the shells.
"""
