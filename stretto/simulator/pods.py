"""What the API server does with pods only: defaults, binding, eviction, graceful deletion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from stretto.simulator import answers
from stretto.simulator.answers import Answer, Refusal, bad_request, conflict, invalid, not_found
from stretto.simulator.kinds import Route, kind_of, no_such_path
from stretto.simulator.pod_defaults import set_spec_defaults
from stretto.simulator.records import Body, PodRecord, Record, decode, encode
from stretto.simulator.store import Store

if TYPE_CHECKING:
    from stretto.simulator.api import ApiServer
    from stretto.simulator.request import Request

PODS = kind_of("", "v1", "pods")
_CHANGEABLE = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
_CONTAINER_CHANGEABLE = ("image", "resources")
ENDED = frozenset({"Succeeded", "Failed"})


class _BindingMeta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Target(msgspec.Struct, gc=False):
    name: str = ""
    kind: str = ""


class _Binding(msgspec.Struct, gc=False):
    target: _Target
    metadata: _BindingMeta = msgspec.field(default_factory=_BindingMeta)


class _Options(msgspec.Struct, rename="camel"):
    preconditions: dict[str, str | None] | None = None
    grace_period_seconds: int | None = None


class _Eviction(msgspec.Struct, rename="camel"):
    delete_options: _Options | None = None


_read_binding = msgspec.json.Decoder(_Binding).decode
_read_eviction = msgspec.json.Decoder(_Eviction).decode


class PodVerbs:
    """The pod part of an API server."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._scheduled: tuple[str, bytes, bytes] = ("", b"", b"")
        self.bound = 0
        """Bindings carried out."""

    @property
    def store(self) -> Store:
        """All pods."""
        return self._api.store(PODS)

    def handle(self, request: Request, route: Route) -> Answer:
        """A subresource other than status."""
        record = self.store.get(route.namespace, route.name)
        if record is None:
            raise not_found("pods", route.name)
        assert isinstance(record, PodRecord), "a pod of another type"
        if request.method == "POST" and route.subresource == "binding":
            return self._bind(record, request.body)
        if request.method == "POST" and route.subresource == "eviction":
            return self._evict(record, request.body)
        raise no_such_path()

    # --- binding -------------------------------------------------------------------------------

    def _bind(self, pod: PodRecord, data: bytes) -> Answer:
        try:
            binding = _read_binding(data)
        except msgspec.DecodeError as error:
            raise bad_request(f"the binding cannot be read: {error}") from None
        meta, node = binding.metadata, binding.target.name
        if binding.target.kind not in ("", "Node"):
            raise Refusal(
                500,
                "",
                f'target.kind: Unsupported value: "{binding.target.kind}": supported values: '
                '"Node", "<empty>"',
            )
        if not node:
            raise Refusal(500, "", "target.name: Required value")
        if meta.name != pod.name:
            raise bad_request("name in URL does not match name in Binding object")
        self._check_bindable(pod, meta)
        status = self._scheduled_status(pod)
        self.store.replace(pod, pod.with_status(status, phase=pod.phase, node_name=node))
        self.bound += 1
        return answers.SUCCESS_CREATED

    @staticmethod
    def _check_bindable(pod: PodRecord, meta: _BindingMeta) -> None:
        """In the order in which kube-apiserver finds fault."""
        for name, wanted, found in (
            ("UID", meta.uid, pod.uid),
            ("ResourceVersion", meta.resource_version, str(pod.version)),
        ):
            if wanted and wanted != found:
                raise answers.precondition(
                    "pods", pod.namespace, pod.name, field=name, wanted=wanted, found=found
                )
        why = ""
        if pod.deleting:
            why = f"pod {pod.name} is being deleted, cannot be assigned to a host"
        elif pod.node_name:
            why = f'pod {pod.name} is already assigned to node "{pod.node_name}"'
        elif pod.gated:
            why = f"pod {pod.name} has non-empty .spec.schedulingGates"
        if why:
            raise conflict("pods/binding", pod.name, why)

    def _scheduled_status(self, pod: PodRecord) -> bytes:
        """The pod's status with PodScheduled=True; encoded once a second for fresh pods."""
        now = self._api.now()
        if self._scheduled[:2] != (now, pod.status):
            condition = {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            status = decode(pod.status)
            status.pop("nominatedNodeName", None)
            with_condition(status, condition)
            self._scheduled = (now, pod.status, encode(status))
        return self._scheduled[2]

    # --- deletion ------------------------------------------------------------------------------

    def _evict(self, pod: PodRecord, data: bytes) -> Answer:
        try:
            options = _read_eviction(data).delete_options or _Options()
        except msgspec.DecodeError as error:
            raise bad_request(f"the eviction cannot be read: {error}") from None
        self._api.delete(
            PODS,
            pod,
            {
                "preconditions": options.preconditions,
                "gracePeriodSeconds": options.grace_period_seconds,
            },
        )
        return answers.SUCCESS_CREATED

    def delete(self, pod: Record, options: Mapping[str, Any]) -> Record:
        """Remove the pod at once, or mark it for its kubelet if it is bound and not over."""
        assert isinstance(pod, PodRecord), "a pod of another type"
        grace_s = options.get("gracePeriodSeconds")
        if grace_s is None:
            grace_s = decode(pod.spec).get("terminationGracePeriodSeconds", 30)
        if not pod.node_name or pod.phase in ENDED:
            grace_s = 0
        marked = self._api.mark_deleted(PODS, pod, grace_s=grace_s)
        if grace_s or pod.held:
            return marked
        # Marked before it goes: the timestamp tells a watch of unbound pods a deletion from a bind.
        return self.store.remove(marked)

    # --- creation and change -------------------------------------------------------------------

    @staticmethod
    def complete_change(before: Body, body: Body, *, name: str) -> None:
        """What a replacement of a pod's spec leaves out stays as it was, or gets its default.

        Raises:
            Refusal: 400 or 422.
        """
        spec = body.get("spec")
        if spec is before["spec"]:
            return
        set_spec_defaults(spec, name=name)
        assert isinstance(spec, dict), "checked just before"
        for key in ("nodeName", "preemptionPolicy", "priority", "tolerations"):
            if key in before["spec"]:
                spec.setdefault(key, before["spec"][key])

    @staticmethod
    def check_change(before: Body, body: Body, *, name: str) -> None:
        """Most of a pod's spec may not change.

        Raises:
            Refusal: 422.
        """
        old, new = before["spec"], body.get("spec")
        if old == new:
            return
        if not isinstance(new, dict) or _fixed_part(old) != _fixed_part(new):
            raise invalid(
                "Pod",
                name,
                "spec: Forbidden: pod updates may not change fields other than "
                "`spec.containers[*].image`,`spec.initContainers[*].image`,"
                "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
                "tolerations)",
            )
        gates = {gate["name"] for gate in old.get("schedulingGates") or ()}
        for place, gate in enumerate(new.get("schedulingGates") or ()):
            if gate["name"] not in gates:
                raise invalid(
                    "Pod",
                    name,
                    f"spec.schedulingGates[{place}].name: Forbidden: only deletion is allowed, "
                    f"but found new scheduling gate '{gate['name']}'",
                )


def with_condition(status: Body, condition: Body) -> None:
    """Set a condition by its type, in place."""
    conditions = status.setdefault("conditions", [])
    for k, was in enumerate(conditions):
        if was.get("type") == condition["type"]:
            conditions[k] = condition
            return
    conditions.append(condition)


def _fixed_part(spec: Body) -> Body:
    fixed = {key: value for key, value in spec.items() if key not in _CHANGEABLE}
    for name in ("containers", "initContainers"):
        fixed[name] = [
            {key: value for key, value in container.items() if key not in _CONTAINER_CHANGEABLE}
            for container in spec.get(name) or ()
        ]
    return fixed


__all__ = ["PODS", "PodVerbs", "Refusal", "with_condition"]
