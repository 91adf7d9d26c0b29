"""Histories by hand: a good one, told step by step, and the means to spoil it."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from stretto.audit.checker import History, check
from stretto.audit.findings import Findings

NAMES = ["cpu", "pods"]
OWNER = "here"
POD_CPU = 100
"""Thousandths that each pod of a story asks for."""


def command(*words: object) -> bytes:
    """A command of an append-only file."""
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def key(part: str) -> str:
    return f"{{stretto:{OWNER}}}:{part}"


class Story:
    """What happened, in order; :meth:`check` judges it."""

    def __init__(self) -> None:
        self.version = 100
        self.now = 1_000
        self.api: list[dict[str, Any]] = []
        self.acts: list[dict[str, Any]] = []
        self.ledger = b""
        self.sequence = 0
        self.epoch = 0
        self.used: dict[str, list[int]] = {}
        """Node uid → [cpu, pods] by entries, as the ledger is told."""
        self.pods: dict[str, dict[str, Any]] = {}

    # --------------------------------------------------------------------------------- the API
    def saw(self, kind: str, what: dict[str, Any], *, type_: str = "MODIFIED") -> None:
        self.version += 1
        what["metadata"]["resourceVersion"] = str(self.version)
        copied = msgspec.json.decode(msgspec.json.encode(what))
        self.api.append({"t": self.now, "kind": kind, "type": type_, "object": copied})

    @contextlib.contextmanager
    def unseen(self, kind: str) -> Iterator[None]:
        """What happens to a kind meanwhile is not watched; a list shows the outcome."""
        start, after, before = len(self.api), self.version, self.existing(kind)
        yield
        now = self.existing(kind)
        self.version += 1
        listed = {
            "t": self.now, "kind": kind, "type": "LISTED", "after": after, "until": self.version,
            "gone": sorted(before.keys() - now.keys()), "gap": f"watch of {kind}: too old",
        }  # fmt: skip
        watched = [line for line in self.api[start:] if line["kind"] != kind]
        told = [{"t": self.now, "kind": kind, "type": "ADDED", "object": o} for o in now.values()]
        self.api[start:] = [*watched, listed, *told]

    def existing(self, kind: str) -> dict[str, dict[str, Any]]:
        """What the log has told to exist of a kind, by uid."""
        objects: dict[str, dict[str, Any]] = {}
        for line in self.api:
            if line["kind"] == kind and "object" in line:
                uid = line["object"]["metadata"]["uid"]
                objects[uid] = line["object"]
                if line["type"] == "DELETED":
                    del objects[uid]
        return objects

    def node(self, name: str, *, cpu: str = "1", gone: bool = False) -> None:
        room = {"cpu": cpu, "pods": "10"}
        node = {"metadata": {"name": name, "uid": f"u-{name}"}, "status": {"allocatable": room}}
        self.saw("nodes", node, type_="DELETED" if gone else "ADDED")

    def group(self, name: str, least: int) -> None:
        policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
        group = {"metadata": {"name": name, "namespace": "", "uid": f"u-{name}"}, "spec": policy}
        self.saw("podgroups", group, type_="ADDED")

    def pod(self, name: str, *, scheduler: str = "stretto", group: str = "") -> None:
        requests = {"cpu": f"{POD_CPU}m"}
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"u-{name}"},
            "spec": {
                "schedulerName": scheduler,
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            },
            "status": {},
        }
        if group:
            self.pods[name]["spec"]["schedulingGroup"] = {"podGroupName": group}
        self.saw("pods", self.pods[name], type_="ADDED")

    def change(self, name: str, **status: Any) -> None:
        """The pod's status changes."""
        self.pods[name]["status"] |= status
        self.saw("pods", self.pods[name])

    def rv(self, name: str) -> int:
        return int(self.pods[name]["metadata"]["resourceVersion"])

    def bound(self, name: str, node: str) -> None:
        self.pods[name]["spec"]["nodeName"] = node
        self.saw("pods", self.pods[name])

    def deleted(self, name: str) -> None:
        self.saw("pods", self.pods.pop(name), type_="DELETED")

    def lease(self, holder: str, epoch: int, *, name: str = "stretto-binder") -> None:
        lease = {
            "metadata": {
                "name": name,
                "uid": f"u-{name}",
                "annotations": {"stretto.io/epoch": str(epoch)},
            },
            "spec": {"holderIdentity": holder},
        }
        self.saw("leases", lease)

    # ------------------------------------------------------------------------------ the ledger
    def step(self, *commands: bytes, seq: bool = True) -> None:
        if seq:
            self.sequence += 1
            commands = (*commands, command("HSET", key("meta"), "seq", self.sequence, "reply", ""))
        self.ledger += b"".join((command("MULTI"), *commands, command("EXEC")))

    def install(self, epoch: int, *, generation: str = "g") -> None:
        self.epoch, self.sequence = epoch, 0
        names = msgspec.json.encode(NAMES)
        meta = ("generation", generation, "epoch", epoch, "stamp", f"{generation} {epoch} w")
        self.step(
            command("HSET", key("meta"), *meta, "names", names, "seq", 0, "state", "OPEN"),
            seq=False,
        )

    def account(self, node: str, *, cpu: int = 1000, flags: int = 0) -> bytes:
        used = self.used.setdefault(f"u-{node}", [0, 0])
        row = [flags, 1, cpu, used[0], 0, 2, 10, used[1], 0]
        return command("HSET", key("accounts"), f"u-{node}", struct.pack("<9d", *row))

    def record(
        self, name: str, node: str, *, state: int = 1, rv: int = 0, charges: Sequence[Any] = ()
    ) -> bytes:
        fields = [f"u-{node}", "", 1, 1, rv or self.rv(name), self.epoch, 1, POD_CPU, 2, 1]
        fields += charges
        return str(state).encode() + msgspec.msgpack.encode(fields)

    def use(self, node: str, sign: int) -> None:
        used = self.used.setdefault(f"u-{node}", [0, 0])
        used[0] += sign * POD_CPU
        used[1] += sign

    def reserved(self, *names_and_node: str, act: bool = True) -> None:
        """Pods and a node: one call."""
        *names, node = names_and_node
        commands = []
        for name in names:
            self.use(node, 1)
            unit = msgspec.msgpack.encode([1, 1])
            commands += [
                command("HSET", key("units"), f"u-{name}", unit),
                command("HSET", key("open"), f"u-{name}", self.record(name, node)),
            ]
        self.step(self.account(node), *commands)
        for name in names if act else ():
            self.act("reserved", name, node=node, rv=self.rv(name))

    def entry_bound(self, name: str, node: str) -> None:
        uid = f"u-{name}"
        self.step(
            command("HSET", key("bound"), uid, self.record(name, node, state=3)),
            command("HDEL", key("open"), uid),
        )
        self.act("bound", name, node=node)

    def freed(self, name: str, node: str, *, cause: str = "gone") -> None:
        self.act("freed", name, node=node, cause=cause)
        self.release(name, node)

    def release(self, name: str, node: str) -> None:
        self.use(node, -1)
        uid = f"u-{name}"
        self.step(
            self.account(node),
            command("HDEL", key("open"), uid),
            command("HDEL", key("bound"), uid),
        )

    # ---------------------------------------------------------------------------------- the acts
    def act(self, act: str, name: str = "", **fields: Any) -> None:
        self.now += 1
        uid = {"uid": f"u-{name}"} if name else {}
        self.acts.append({"act": act, "epoch": self.epoch, "t": self.now, **uid, **fields})

    def opened(self, epoch: int = 7) -> None:
        """A Binder with two nodes of one cpu."""
        self.install(epoch)
        for name in ("n1", "n2"):
            if f"u-{name}" not in self.used:
                self.node(name)
            self.step(self.account(name))
        self.act("open")

    def placed(self, name: str, node: str) -> None:
        """The happy way of a pod that exists."""
        self.reserved(name, node)
        self.binds(name, node)

    def binds(self, name: str, node: str) -> None:
        """What is reserved is bound."""
        self.act("post", name, node=node, rv=self.rv(name))
        self.act("answer", name, cause="bound")
        self.bound(name, node)
        self.entry_bound(name, node)

    # --------------------------------------------------------------------------------- the verdict
    def history(self) -> History:
        api = b"\n".join(map(msgspec.json.encode, self.api))
        acts = b"\n".join(map(msgspec.json.encode, self.acts))
        return History(api, acts, self.ledger, OWNER)

    def check(self, **options: Any) -> Findings:
        return check(self.history(), **options)

    def broken(self, **options: Any) -> dict[str, int]:
        """Invariants that are violated, with how often."""
        return {name: count for name, count in self.check(**options).broken.items() if count}
