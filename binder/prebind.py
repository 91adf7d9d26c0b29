"""PREBIND: between a reservation and its bind, the claims of the pod are bound (design §12.7).

    WRITING ──► WAITING ──► (RESERVED: its bind)
       │           │
       └───────────┴──► UNDOING ──► (freed)

Writes: first the pod's own status.nominatedNodeName, so that whoever counts nodes meanwhile (a
cluster autoscaler) sees where it is going, as kube-scheduler does since 1.35
(NominatedNodeNameForExpectation); nothing waits for that one, and it is taken back last. Then a
volume's claimRef for a claim that gets an existing one, a claim's selected-node
annotation for one that is provisioned. Then the volume controller and the provisioner act, and the
watch shows it; nobody's bind slot is held meanwhile. It fails when the provisioner gives up (it
takes the annotation away), when the volume or the claim changes otherwise, or at the deadline; then
what was written and has not been acted on is taken back before the room is freed, so that the next
decision is free. The pods of a gang are bound when the last of them has passed.

Plain methods; the shell in :mod:`binder.prebinder` writes and tells the time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from binder.bindings import Binding
from binder.device_book import DeviceBook
from binder.proposals import Reservation
from binder.storage import Storage
from stretto.model.devices import Allocation, ClaimRow, Request
from stretto.snapshot.volume_rows import VolumeRow

MAX_WRITES = 5
"""Tries of one write; objects change while they are looked at."""
FIRST_RETRY_S = 0.2


class Phase(enum.IntEnum):
    """Where a pod is."""

    WRITING = 1
    WAITING = 2
    READY = 3
    """It has passed, and waits for the rest of its gang."""
    UNDOING = 4
    OVER = 5


class Write(NamedTuple):
    """One object to change."""

    claim: str
    """Key of the claim."""
    claim_uid: str
    volume: str
    """The volume that gets the claimRef; empty: the claim gets the annotation."""
    node: str


class ClaimWrite(NamedTuple):
    """A claim to devices: it gets its devices if it has none, and the pod as a user."""

    claim: str
    """Key of the claim; a name of the log only while ``special`` has not been made."""
    claim_uid: str
    allocation: Allocation | None = None
    special: tuple[Request, ...] = ()
    """The claim is made first, for extended resources: what it asks for."""
    volume: str = ""
    node: str = ""


class Nomination(NamedTuple):
    """The pod's status says where it is going."""

    node: str
    claim: str = ""
    volume: str = ""


AnyWrite = Write | ClaimWrite | Nomination


class Answer(enum.IntEnum):
    """What came of a write or of taking it back."""

    DONE = 1
    """It is as wanted, by us or by another."""
    LOST = 2
    """Somebody else has it, or it is gone."""
    AGAIN = 3
    """It changed while it was looked at, or there was no answer."""


class Step(NamedTuple):
    """What the shell does next for a pod."""

    write: AnyWrite | None = None
    undo: bool = False
    """Take the write back."""
    delay_s: float = 0.0


class Prebind(msgspec.Struct):
    """One pod."""

    binding: Binding
    deadline_s: float
    writes: list[AnyWrite]
    """Still to be made, the next one last."""
    phase: Phase = Phase.WRITING
    made: list[AnyWrite] = msgspec.field(default_factory=list)
    shown: set[str] = msgspec.field(default_factory=set)
    """Claims whose write the API has shown: only then does its absence mean a loss."""
    tries: int = 0
    failure: str = ""
    withdrawn: bool = False
    """It ends because the dispatcher gave the pod up, which a read has to confirm."""
    resource_version: int = 0
    """Of the pod, after the nomination was taken back; 0: not known."""
    stepping: bool = False
    """The shell has a step of it in hand."""


class Prebinds:
    """All pods in PREBIND, by uid. ``reaches(volume, node)``: the node can reach the volume."""

    def __init__(
        self,
        storage: Storage,
        devices: DeviceBook,
        *,
        reaches: Callable[[VolumeRow, str], bool],
    ) -> None:
        self.by_uid: dict[str, Prebind] = {}
        self._storage = storage
        self._devices = devices
        self._reaches = reaches
        self.due: list[Prebind] = []
        """Those that the shell should look at at once."""
        self._units: dict[str, set[str]] = {}
        """Unit → pods of it that have not passed."""

    def __len__(self) -> int:
        return len(self.by_uid)

    def begin(self, binding: Binding, *, deadline_s: float) -> Prebind:
        """A pod was reserved; its claims are held."""
        reservation = binding.reservation
        node, plan = reservation.node_name, reservation.volumes
        pairs = (*plan.static, *((claim, "") for claim in plan.provision))
        nomination = Nomination(node)
        nominated = reservation.shape.nominated_node == node
        writes: list[AnyWrite] = [] if nominated else [nomination]
        writes += [Write(claim, self._uid_of(claim), volume, node) for claim, volume in pairs]
        writes += self._device_writes(reservation)
        phase = Phase.WRITING if writes else Phase.WAITING
        found = Prebind(binding, deadline_s, writes[::-1], phase, [nomination] * nominated)
        assert binding.uid not in self.by_uid, f"{binding.uid} is in PREBIND already"
        assert not binding.unsure, "a bind was sent before PREBIND"
        self.by_uid[binding.uid] = found
        self.due.append(found)
        self._units.setdefault(reservation.unit_id, set()).add(binding.uid)
        return found

    def _device_writes(self, reservation: Reservation) -> list[ClaimWrite]:
        """Claims that need a write: those that have no devices, or not this pod as a user."""
        plan, uid = reservation.devices, reservation.member.uid
        chosen = dict(plan.allocations)
        found = []
        for key in plan.claims:
            row = self._devices.claim(key)
            claim_uid = "" if row is None else row.uid
            if key in chosen or row is None or uid not in row.reserved_for:
                found.append(ClaimWrite(key, claim_uid, chosen.get(key)))
        if plan.special:
            key = special_key(reservation)
            found.append(ClaimWrite(key, "", chosen.get(""), special=plan.special))
        return found

    def _uid_of(self, key: str) -> str:
        claim = self._storage.claim(key)
        return "" if claim is None else claim.uid

    # ---------------------------------------------------------------------------------- the shell
    def step(self, prebind: Prebind) -> Step:
        """The next write, or none while it waits or is over."""
        delay_s = FIRST_RETRY_S * (2**prebind.tries - 1)
        if prebind.phase is Phase.WRITING and prebind.writes:
            return Step(prebind.writes[-1], delay_s=delay_s)
        if prebind.phase is Phase.UNDOING and prebind.made:
            return Step(prebind.made[-1], undo=True, delay_s=delay_s)
        return Step()

    def answered(self, prebind: Prebind, step: Step, answer: Answer) -> None:
        """What came of a step."""
        assert step.write is not None
        prebind.tries += 1
        assert prebind.tries <= MAX_WRITES
        nominating = isinstance(step.write, Nomination) and not step.undo
        again = answer is Answer.AGAIN and prebind.tries < MAX_WRITES and not nominating
        if again and (prebind.phase is Phase.UNDOING) is step.undo:
            return
        prebind.tries = 0
        if step.undo:
            assert prebind.made[-1] == step.write, "another write was taken back"
            prebind.made.pop()
            return
        if answer is not Answer.LOST:
            prebind.made.append(step.write)  # after AGAIN it may have been made all the same
        if prebind.phase is not Phase.WRITING:
            return
        assert prebind.writes[-1] == step.write, "another write was answered"
        prebind.writes.pop()
        if answer is not Answer.DONE and not nominating:
            what = f"volume {step.write.volume}" if step.write.volume else "it"
            self.fail(prebind, f"claim {step.write.claim}: {what} could not be bound")
        elif not prebind.writes:
            prebind.phase = Phase.WAITING

    # ---------------------------------------------------------------------------------- the watch
    def look(self, prebind: Prebind, *, now_s: float) -> None:
        """Draw the conclusions of what the API shows and of the time."""
        if prebind.phase not in (Phase.WRITING, Phase.WAITING):
            return
        waits = prebind.phase is Phase.WRITING
        for write in prebind.made:
            problem, bound = self._state(prebind, write)
            if problem:
                self.fail(prebind, f"claim {write.claim}: {problem}")
                return
            waits = waits or not bound
        if not waits:
            assert not prebind.writes
            assert not prebind.failure
            prebind.phase = Phase.READY
        elif now_s >= prebind.deadline_s:
            writes = (*prebind.made, *prebind.writes)
            names = ", ".join(write.claim for write in writes if write.claim)
            self.fail(prebind, f"binding volumes: claims not bound in time: {names}")

    def _state(self, prebind: Prebind, write: AnyWrite) -> tuple[str, bool]:
        """(why it cannot become bound, whether it is)."""
        if isinstance(write, Nomination):
            return "", True
        if isinstance(write, ClaimWrite):
            return self._device_state(prebind, write)
        claim = self._storage.claim(write.claim)
        if claim is None or claim.uid != write.claim_uid:
            return "it was deleted", False
        if claim.volume_name:
            return self._bound_state(write, claim.volume_name, completed=claim.completed)
        if write.volume:
            volume = self._storage.volume(write.volume)
            if volume is None:
                return f"volume {write.volume} was deleted", False
            ours = volume.claim is not None and volume.claim.uid == write.claim_uid
            lost = f"volume {write.volume} was given to another claim"
        else:
            ours = claim.selected_node == write.node
            lost = f"provisioning on {write.node} failed"
        if ours:
            prebind.shown.add(write.claim)
        shown = write.claim in prebind.shown or self._storage.shown(write.claim)
        return (lost if shown and not ours else ""), False

    def _device_state(self, prebind: Prebind, write: ClaimWrite) -> tuple[str, bool]:
        """A claim that was written is the pod's; its devices may still have to be attached."""
        waits = write.allocation is None or any(
            result.binding_conditions for result in write.allocation.results
        )
        row = self._devices.claim(write.claim)
        if row is None or write.special:
            # The watch may be behind; the write itself has said that the claim is there.
            return ("it was deleted" if write.claim in prebind.shown else ""), not waits
        if row.uid != write.claim_uid:
            return "it was deleted", False
        if row.allocation is None or prebind.binding.uid not in row.reserved_for:
            lost = write.claim in prebind.shown
            return ("it was deallocated" if lost else ""), not waits
        prebind.shown.add(write.claim)
        failed, ready = binding_state(row)
        return (f"a device cannot be attached: {failed}" if failed else ""), ready

    def _bound_state(self, write: Write, name: str, *, completed: bool) -> tuple[str, bool]:
        volume = self._storage.volume(name)
        if volume is None:
            return "", False  # the watch of volumes is behind
        if not self._reaches(volume, write.node):
            return f"volume {name} cannot be reached from {write.node}", False
        return "", completed

    # ------------------------------------------------------------------------------------ the end
    def fail(self, prebind: Prebind, text: str) -> None:
        """It cannot go on: undo, and the rest of its gang with it."""
        for other in self._gang(prebind):
            assert other.phase is not Phase.OVER, "one that is over is in a gang"
            if other.phase < Phase.UNDOING:
                other.phase, other.tries = Phase.UNDOING, 0
                other.failure = text
                self.due.append(other)

    def withdraw(self, uid: str) -> None:
        """The dispatcher gave the pod up."""
        prebind = self.by_uid.get(uid)
        if prebind is not None and prebind.phase < Phase.UNDOING:
            self.fail(prebind, "the pod is gone, or another of its group")
            prebind.withdrawn = True

    def node_gone(self, uid: str) -> None:
        """The node of the pod was deleted."""
        prebind = self.by_uid.get(uid)
        if prebind is not None:
            self.fail(prebind, f"node {prebind.binding.reservation.node_name} was deleted")

    def passed(self, prebind: Prebind) -> list[Prebind]:
        """Pods whose bind may be sent now that this one has passed: all of its unit or none."""
        gang = self._gang(prebind)
        if not all(each.phase is Phase.READY for each in gang):
            return []
        assert prebind in gang, "passed after its end"
        for each in gang:
            self.end(each)
        return gang

    def undone(self, prebind: Prebind) -> bool:
        """Whether it has failed and nothing of it is left to take back."""
        return prebind.phase is Phase.UNDOING and not prebind.made and not prebind.stepping

    def end(self, prebind: Prebind) -> None:
        """It is no longer in PREBIND."""
        prebind.phase = Phase.OVER
        uid = prebind.binding.uid
        if self.by_uid.get(uid) is prebind:
            del self.by_uid[uid]
            unit = prebind.binding.reservation.unit_id
            assert uid in self._units[unit], f"{uid} is missing in its unit"
            self._units[unit].discard(uid)
            if not self._units[unit]:
                del self._units[unit]

    def _gang(self, prebind: Prebind) -> list[Prebind]:
        uids = self._units.get(prebind.binding.reservation.unit_id, ())
        return [self.by_uid[uid] for uid in uids]


def special_key(reservation: Reservation) -> str:
    """The log's name for the claim of a pod's extended resources until it is made; no object of
    the API can have it."""
    return f"{reservation.member.namespace}/<extended-resources of {reservation.member.uid}>"


def binding_state(claim: ClaimRow) -> tuple[str, bool]:
    """(a failure that a driver reports of a device, whether all binding conditions are met);
    isClaimReadyForBinding of kube-scheduler."""
    true = {(c.driver, c.pool, c.device, c.type) for c in claim.conditions}
    ready = True
    for result in () if claim.allocation is None else claim.allocation.results:
        if not result.binding_conditions:
            continue
        device = result.driver, result.pool, result.device
        for failure in result.binding_failures:
            if (*device, failure) in true:
                return f"{'/'.join(device)} has {failure}", False
        ready = ready and all((*device, wanted) in true for wanted in result.binding_conditions)
    return "", ready
