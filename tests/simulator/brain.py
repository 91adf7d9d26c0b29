"""An API server without HTTP, and objects for it."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from stretto.simulator.api import ApiServer
from stretto.simulator.kinds import kind_of
from stretto.simulator.kubelet import Kubelets
from stretto.simulator.pods import PODS
from stretto.simulator.records import PodRecord
from stretto.simulator.request import Request

NODES = kind_of("", "v1", "nodes")
POD_PATH = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


def api_server(**settings: Any) -> ApiServer:
    return ApiServer(now=lambda later_s=0: f"at+{later_s}", rng=random.Random(1), **settings)


def call(
    api: ApiServer,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "application/json",
    **params: str,
) -> tuple[int, Any]:
    data = b"" if body is None else msgspec.json.encode(body)
    request = Request(method, path, params, data, content_type)
    answer = api.handle(request)
    return answer.status, msgspec.json.decode(answer.body)


def pod(name: str, *, requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    requests = requests or {}
    limits = {name: text for name, text in requests.items() if "/" in name}  # must be equal
    resources = {"requests": requests, "limits": limits}
    container = {"name": "c", "image": "a:1", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def node(name: str, labels: dict[str, str] | None = None, **allocatable: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10", **allocatable}
    return {"metadata": {"name": name, "labels": labels or {}}, "status": {"allocatable": room}}


def bind(api: ApiServer, name: str, node_name: str, **meta: str) -> tuple[int, Any]:
    body = {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node_name}}
    return call(api, "POST", f"{POD_PATH}/{name}/binding", body)


class Judged:
    """Kubelets attached to an API server; ``verdicts`` are their actions, in order."""

    def __init__(self, api: ApiServer) -> None:
        self.kubelets = Kubelets()
        self.verdicts: list[Any] = []
        api.store(NODES).observe(lambda change: self._add(self.kubelets.observe_node(change)))
        api.store(PODS).observe(lambda change: self._add(self.kubelets.observe_pod(change)))

    def _add(self, actions: list[Any]) -> None:
        self.verdicts += actions


def current(api: ApiServer, name: str) -> PodRecord:
    record = api.store(PODS).get("default", name)
    assert isinstance(record, PodRecord)
    return record
