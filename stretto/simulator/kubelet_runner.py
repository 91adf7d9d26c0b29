"""Carries out what the kubelets decide: their shell, with timers and writes."""

from __future__ import annotations

import asyncio
from collections import deque

from stretto.simulator.api import ApiServer
from stretto.simulator.kinds import kind_of
from stretto.simulator.kubelet import DURATION, Action, End, Kubelets, Reject
from stretto.simulator.pods import ENDED, PODS, with_condition
from stretto.simulator.records import Body, PodRecord, decode, encode
from stretto.simulator.settings import KubeletMode
from stretto.simulator.store import Change

NODES = kind_of("", "v1", "nodes")
MAX_RUN_MS = 10**12


class KubeletRunner:
    """Feeds the kubelets with changes and writes what they say."""

    def __init__(
        self,
        api: ApiServer,
        *,
        mode: KubeletMode,
        start_delay_s: float = 0.0,
        termination_s: float = 0.0,
    ) -> None:
        self.kubelets = Kubelets()
        self.succeeded = 0
        self._api = api
        self._mode = mode
        self._start_delay_s = start_delay_s
        self._termination_s = termination_s
        self._loop = asyncio.get_running_loop()
        self._soon: deque[Action] = deque()
        self._closed = False
        if mode is not KubeletMode.OFF:
            api.store(NODES).observe(self._on_node)
            api.store(PODS).observe(self._on_pod)

    def close(self) -> None:
        """Write nothing more; timers that are still set do nothing."""
        self._closed = True

    def _on_node(self, change: Change) -> None:
        self._take(self.kubelets.observe_node(change))

    def _on_pod(self, change: Change) -> None:
        self._take(self.kubelets.observe_pod(change))

    def _take(self, actions: list[Action]) -> None:
        if self._mode is not KubeletMode.RUN:
            return
        for action in actions:
            delay_s = self._termination_s if isinstance(action, End) else self._start_delay_s
            if delay_s:
                self._loop.call_later(delay_s, self._carry_out, action)
                continue
            self._soon.append(action)
            if len(self._soon) == 1:
                # Not inside the write that caused it: a change is told whole before the next.
                self._loop.call_soon(self._carry_out_soon)

    def _carry_out_soon(self) -> None:
        while self._soon:
            self._carry_out(self._soon[0])
            self._soon.popleft()

    def _carry_out(self, action: Action) -> None:
        pod = self._current(action.pod)
        if pod is None or self._closed:
            return
        if isinstance(action, End):
            self._end(pod)
        elif isinstance(action, Reject):
            reason, message = action.reason, action.message
            self._write(pod, {"phase": "Failed", "reason": reason, "message": message})
        else:
            self._start(pod)

    def _current(self, pod: PodRecord) -> PodRecord | None:
        """The pod as it is by now, if it is the same and not over."""
        now = self._api.store(PODS).get(pod.namespace, pod.name)
        if not isinstance(now, PodRecord) or now.uid != pod.uid:
            return None
        return now

    def _start(self, pod: PodRecord) -> None:
        if pod.phase in ENDED or pod.deleting:
            return
        started = self._api.now()
        self._write(pod, {"phase": "Running", "startTime": started}, ready=True)
        run_ms = run_time_ms(pod)
        if run_ms is not None:
            self._loop.call_later(run_ms / 1000, self._succeed, pod)

    def _succeed(self, pod: PodRecord) -> None:
        now = self._current(pod)
        if (
            self._closed
            or now is None
            or now.phase in ENDED
            or not self.kubelets.has_node(now.node_name)
        ):
            return
        self._write(now, {"phase": "Succeeded"}, ready=False)
        self.succeeded += 1

    def _end(self, pod: PodRecord) -> None:
        if not pod.held:
            self._api.store(PODS).remove(pod)
        elif pod.phase not in ENDED:
            self._write(pod, {"phase": "Succeeded"}, ready=False)

    def _write(self, pod: PodRecord, status: Body, *, ready: bool | None = None) -> None:
        changed = {**decode(pod.status), **status}
        if ready is not None:
            for kind in ("Ready", "ContainersReady"):
                condition = {
                    "type": kind,
                    "status": str(ready),
                    "lastTransitionTime": self._api.now(),
                }
                with_condition(changed, condition)
        new = pod.with_status(encode(changed), phase=changed["phase"])
        self._api.store(PODS).replace(pod, new)


def run_time_ms(pod: PodRecord) -> float | None:
    """How long the pod asks to run; None for ever."""
    text = str((pod.body()["metadata"].get("annotations") or {}).get(DURATION, ""))
    if not text.isdecimal():
        return None
    return min(int(text[:13]), MAX_RUN_MS)
