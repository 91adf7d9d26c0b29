"""A shard's own claims on nodes, whose victims have yet to go: nominations that it has proposed.

They count in the snapshot as nominations at once, so that the next decision leaves the room alone
and looks for other victims. A claim without a verdict is *open*: what it keeps out may yet fit, so
nothing is called hopeless meanwhile. When the log has reached the verdict, it speaks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler_shard.units import bare, seed_of
from stretto.model.shape import Shape
from stretto.model.unit import Diagnosis, Proposal, Release, Unit
from stretto.placement.kernel import Kernel
from stretto.placement.postfilter import PostFilterResult, condition_message
from stretto.placement.preemption import Refused
from stretto.snapshot.columns import Snapshot


class Decided(msgspec.Struct):
    """What becomes of units that fit nowhere."""

    diagnosis: Diagnosis
    """Why, and why preemption does not help the hopeless ones."""
    proposals: list[Proposal] = msgspec.field(default_factory=list)
    """With victims."""
    hopeless: list[Unit] = msgspec.field(default_factory=list)
    releases: list[Release] = msgspec.field(default_factory=list)
    """Claims to devices that keep them from where they could go."""
    undecided: list[Unit] = msgspec.field(default_factory=list)
    """A claim of our own that is open may be what keeps them out."""


class Claims:
    """Claims by pod uid."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made: dict[str, tuple[str, Shape]] = {}
        self._won: dict[str, int] = {}
        """Those that stand, with the sequence that contains them."""

    def __len__(self) -> int:
        return len(self._made)

    @property
    def open(self) -> bool:
        """Some have no verdict."""
        return len(self._won) < len(self._made)

    def decide(
        self,
        kernel: Kernel,
        shape: Shape,
        units: list[Unit],
        *,
        told: Diagnosis | None = None,
        refused: Refused | None = None,
    ) -> Decided:
        """Claim nodes for units of one shape that fit nowhere, as long as preemption helps.

        ``told``: why they do not, if the kernel does not know; ``refused``: where they fit but for
        extenders.
        """
        decided = Decided(told or kernel.diagnose(shape))
        message = decided.diagnosis.message
        if decided.diagnosis.error:
            decided.hopeless += units  # the attempt itself failed: nobody goes for that
            return decided
        for index, unit in enumerate(units):
            uid = unit.members[0].uid
            result = kernel.post_filter(shape, seed=seed_of(unit), pod=uid, refused=refused)
            if result.release is not None and not self.open:
                claim = result.release
                decided.releases.append(Release(claim.key, claim.uid, uid))
            diagnosis = decided.diagnosis = msgspec.structs.replace(
                decided.diagnosis,
                message=condition_message(message, result),
                clears=result.nominate == "",
            )
            if not result.victims or result.nominate is None:
                rest = decided.undecided if self.open else decided.hopeless
                rest += units[index:]
                break
            decided.proposals.append(self.claim(unit, shape, result, diagnosis))
        return decided

    def claim(
        self, unit: Unit, shape: Shape, result: PostFilterResult, diagnosis: Diagnosis
    ) -> Proposal:
        """Claim the node that preemption nominates for a unit."""
        snapshot, node = self._snapshot, result.nominate
        assert node, "preemption without a node"
        row = snapshot.row_of_name(node)
        assert row is not None, f"preemption on {node}, which is not there"
        nodes = (int(snapshot.node_id[row]),)
        return self.claim_all(unit, [shape], nodes, result.victims, diagnosis=diagnosis)

    def claim_all(
        self,
        unit: Unit,
        shapes: Sequence[Shape],
        nodes: tuple[int, ...],
        victims: tuple[str, ...],
        *,
        diagnosis: Diagnosis,
    ) -> Proposal:
        """Claim a node for each member of a unit."""
        snapshot = self._snapshot
        for member, shape, node_id in zip(unit.members, shapes, nodes, strict=True):
            row = snapshot.row_of(node_id)
            assert row is not None, f"preemption on node {node_id}, which is not there"
            waiting = msgspec.structs.replace(shape, nominated_node="")
            self.add(member.uid, node=snapshot.name[row], shape=waiting)
        return Proposal(bare(unit), nodes, (), snapshot.version.sequence, victims, diagnosis)

    def add(self, uid: str, *, node: str, shape: Shape) -> None:
        """A claim is proposed; ``shape`` as the pod will have it on the node."""
        assert node, f"{uid} claims no node"
        self._made[uid] = node, shape
        self._won.pop(uid, None)
        self._snapshot.nominations.put(uid, node=node, shape=shape)

    def won(self, uid: str, sequence: int) -> None:
        """The Binder has taken it, in the step with this sequence."""
        if uid in self._made:
            assert sequence > 0, "won before the log began"
            self._won[uid] = sequence
            self.reached(self._snapshot.version.sequence)

    def lost(self, uid: str) -> None:
        """The Binder has not; what the log says of the pod counts again."""
        self._won.pop(uid, None)
        assert len(self._won) <= len(self._made), "a claim stands that was not made"
        if self._made.pop(uid, None) is not None:
            self._snapshot.restore_nomination(uid)

    def reached(self, sequence: int) -> None:
        """The snapshot contains every step up to here."""
        for uid in [uid for uid, at in self._won.items() if at <= sequence]:
            self.lost(uid)

    def move_to(self, snapshot: Snapshot) -> None:
        """Count the same claims on another snapshot of the same epoch."""
        self._snapshot = snapshot
        for uid, (node, shape) in self._made.items():
            snapshot.nominations.put(uid, node=node, shape=shape)
        self.reached(snapshot.version.sequence)

    def clear(self) -> None:
        """Their epoch is over."""
        for uid in list(self._made):
            self.lost(uid)
        assert not self._won, "a claim outlives its epoch"
