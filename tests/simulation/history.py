"""The history of a simulated run, for the checker of recorded runs (:mod:`stretto.audit`).

The judge sees what is wrong in the API server's objects; most faults do no harm there in a short
run. The checker holds every act against the rules: no bind without a reservation, nothing freed
while its bind may land, no version but the one that the ledger has accepted. So the run leaves the
three logs that it reads, in memory: changes of the API server's objects as they happen, the
Binders' acts, and the ledger's file as a server would have written it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from stretto.audit.checker import EMPTIED, History, check
from stretto.audit.findings import Findings
from stretto.audit.rules_gangs import UPSTREAM
from stretto.ledger.twin_store import Record, TwinStore
from stretto.ledger.types import EntryState
from stretto.simulator.api import ApiServer
from stretto.simulator.kinds import kind_of
from stretto.simulator.store import Change
from stretto.telemetry.audit_log import AuditRecord
from tests.simulation.world import Host, World

KINDS = {
    "pods": kind_of("", "v1", "pods"),
    "nodes": kind_of("", "v1", "nodes"),
    "leases": kind_of("coordination.k8s.io", "v1", "leases"),
    UPSTREAM: kind_of("scheduling.k8s.io", "v1beta1", "podgroups"),
}
OWNER = "simulation"
Hashes = dict[str, dict[str, Any]]
"""The ledger's, by part."""
_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class Recorder:
    """See the module docstring."""

    def __init__(self, world: World, api: ApiServer, ledger: TwinStore) -> None:
        self._world = world
        self._store = ledger
        self._api: list[tuple[int, str, Change]] = []
        self._acts: list[bytes] = []
        self._file: list[bytes] = []
        self._hashes: Hashes = _hashes(ledger)
        for name, kind in KINDS.items():
            api.store(kind).observe(lambda change, name=name: self._changed(name, change))

    @property
    def _now_ns(self) -> int:
        return int(self._world.now * 1e9)

    # ------------------------------------------------------------------------------ the API server
    def _changed(self, name: str, change: Change) -> None:
        self._api.append((self._now_ns, name, change))

    def _lines(self) -> Iterable[bytes]:
        for name in KINDS:
            yield _json({"kind": name, "type": "LISTED", "after": 0, "until": 0})
        for at_ns, name, change in self._api:
            found = change.new or change.old
            assert found is not None, "a change of nothing"
            if name == "leases" and not found.name.startswith("stretto-"):
                continue
            what = "MODIFIED" if change.old else "ADDED"
            if change.new is None:
                what, found = "DELETED", found.at(change.version)
            line = {"t": at_ns, "kind": name, "type": what, "object": msgspec.Raw(found.raw)}
            yield _json(line)

    # --------------------------------------------------------------------------- the Binders' acts
    def acts(self, host: Host, *, epoch: int) -> Acts:
        """The log of the Binder of an epoch."""
        return Acts(self, host, epoch=epoch)

    def act(self, record: AuditRecord) -> None:
        """Somebody did something."""
        record.t = self._now_ns
        self._acts.append(_json(record))

    # -------------------------------------------------------------------------------- the ledger
    def called(self) -> None:
        """A call was carried out: what it changed."""
        old, new = self._hashes, _hashes(self._store)
        self._hashes = new
        emptied = old["meta"].get("generation") != new["meta"].get("generation")
        if emptied and old["meta"]:
            self._file += [b"*1\r\n$5\r\nMULTI\r\n", EMPTIED]
            old = {part: {} for part in new}
            self._file += _changes(old, new, parts=new)
            self._file.append(b"*1\r\n$4\r\nEXEC\r\n")
        else:
            changes = list(_changes(old, new, parts=new))
            self._file += [b"*1\r\n$5\r\nMULTI\r\n", *changes, b"*1\r\n$4\r\nEXEC\r\n"]

    def crashed(self) -> None:
        """The server has come back on what its file had: what it holds, and what units were
        answered apart from it, so that nothing is taken for granted a second time."""
        self._hashes = new = _hashes(self._store)
        empty: Hashes = {part: {} for part in new}
        for parts in (("meta", "accounts", "open", "bound"), ("units",)):
            self._file += [EMPTIED] if "meta" in parts else []
            changes = list(_changes(empty, new, parts=parts))
            self._file += [b"*1\r\n$5\r\nMULTI\r\n", *changes, b"*1\r\n$4\r\nEXEC\r\n"]

    # ---------------------------------------------------------------------------------- the end
    def findings(self, *, at_rest: bool) -> Findings:
        """What the rules say. ``at_rest``: nothing was under way at the end."""
        api, acts = b"\n".join(self._lines()), b"\n".join(self._acts)
        return check(History(api, acts, b"".join(self._file), OWNER), at_rest=at_rest)


class Acts:
    """Stands in for :class:`stretto.telemetry.audit_log.AuditLog`."""

    on = True

    def __init__(self, recorder: Recorder, host: Host, *, epoch: int) -> None:
        self._recorder = recorder
        self._host = host
        self._epoch = epoch

    def note(self, record: AuditRecord) -> None:
        """Write a record, unless the host is dead."""
        if not self._host.dead:
            record.epoch = self._epoch
            self._recorder.act(record)

    def close(self) -> None:
        """Nothing to close."""


def _hashes(store: TwinStore) -> Hashes:
    """The server's hashes as they are now; records are copied, since the twin changes them."""
    meta: dict[str, Any] = dict(store.meta)
    if meta:
        meta["names"] = tuple(store.names.names)
    found: Hashes = {"meta": meta, "accounts": {}, "open": {}, "bound": {}, "units": {}}
    for uid, record in store.accounts.items():
        found["accounts"][uid] = tuple(record)
    for uid, record in store.pods.items():
        part = "bound" if record[0] == EntryState.BOUND else "open"
        found[part][uid] = tuple(record)
    for uid, record in store.units.items():
        found["units"][uid] = tuple(record)
    return found


def _changes(old: Hashes, new: Hashes, *, parts: Iterable[str]) -> Iterable[bytes]:
    """Commands that make one of the other."""
    for part in parts:
        before, after = old[part], new[part]
        for field, value in after.items():
            if before.get(field) != value:
                yield _command("HSET", part, field, _packed(part, field, value))
        for field in before.keys() - after.keys():
            yield _command("HDEL", part, field)


def _packed(part: str, field: str, value: Any) -> bytes:
    """A value as the script writes it."""
    if part == "meta":
        return _json(value) if field == "names" else str(value).encode()
    record: Record = list(value)
    if part == "accounts":
        return struct.pack(f"<{len(record)}d", *record)
    if part == "units":
        return _pack(record)
    return b"%d" % record[0] + _pack(record[1:])


def _command(verb: str, part: str, *words: str | bytes) -> bytes:
    all_words = (verb, f"{{stretto:{OWNER}}}:{part}", *words)
    encoded = [word.encode() if isinstance(word, str) else word for word in all_words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in encoded)
