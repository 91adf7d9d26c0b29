"""Four shards and a Binder without any wire between them, for races over the last of something.

Every round the shards decide on the same state, so that their proposals collide; the Binder takes
them in any order and in batches of any size; verdicts and steps of the log reach each shard in any
order that a network could give them. Who lost is decided again by some shard, as the dispatcher
would have it done, until it is placed or fits nowhere.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from binder.machine import Machine
from binder.proposals import Incoming
from scheduler_shard.worker import Shard
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.types import LedgerMember, LedgerOp, LedgerUnit, ReserveKind, account_kind
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Member, PodUid, Unit, UnitId, Verdict, VerdictKind
from stretto.placement.profiles import Profiles
from stretto.rpc.messages import FollowKind, FollowMessage, ToShard, VerdictBatch
from stretto.snapshot.delta import Delta, NodeRow

SHARDS = 4
MAX_ATTEMPTS = 6
VALIDATE_EVERY = 500
"""Rounds."""


@dataclass
class Contender:
    """A pod in the race."""

    uid: str
    shape: Shape
    attempts: int = 0
    node: int = 0
    """Where it was committed; 0: nowhere."""
    message: str = ""
    """Why it fits nowhere."""
    after: int = 0
    """Sequence to reach before the next decision."""
    conflicts: list[str] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        return bool(self.node or self.message)


class Arena:
    """See the module docstring."""

    def __init__(self, *, seed: int, nodes: Sequence[NodeRow]) -> None:
        self.rng = random.Random(seed)
        profiles = Profiles.default()
        self.machine = Machine(epoch=1, profiles=profiles)
        self.ledger = LedgerTwin()
        self.ledger.install(1)
        self.ledger.opened()
        self.shards = [Shard(profiles=profiles) for _ in range(SHARDS)]
        self.logs: list[deque[Delta]] = [deque() for _ in range(SHARDS)]
        self.attempt = 0
        self.conflicts = 0
        self.charged: Counter[str] = Counter()
        """Kind of account → charges that were found."""
        for row in nodes:
            self.machine.node_seen(row)
        self.machine.effects()
        for shard in self.shards:
            self._follow_from_nothing(shard)
            shard.work_opened()
            shard.propose_opened(1)

    def _follow_from_nothing(self, shard: Shard) -> None:
        state = self.machine.cluster.snapshot
        head = Delta(epoch=1, sequence=state.version.sequence)
        shard.followed(FollowMessage(FollowKind.FULL_BEGIN, head), now=0.0)
        for chunk in state.full_state():
            shard.followed(FollowMessage(FollowKind.FULL_CHUNK, chunk), now=0.0)
        shard.followed(FollowMessage(FollowKind.FULL_END, head), now=0.0)

    # -------------------------------------------------------------------------------- the network
    def publish(self) -> None:
        """Steps of the log go on their way to every shard."""
        for delta in self.machine.effects().deltas:
            for log in self.logs:
                log.append(delta)

    def deliver(self, number: int, count: int | None = None) -> None:
        """Some, or all, of the steps that a shard has not seen."""
        log, shard = self.logs[number], self.shards[number]
        for _ in range(len(log) if count is None else min(count, len(log))):
            message = FollowMessage(FollowKind.DELTA, log.popleft())
            shard.followed(message, now=0.0)

    def all_delivered(self) -> None:
        """Every shard sees the present."""
        self.publish()
        for number in range(SHARDS):
            self.deliver(number)

    # -------------------------------------------------------------------------------------- rounds
    def race(self, shapes: Sequence[Shape], *, tag: str) -> list[Contender]:
        """All contenders at once, then the losers until everybody is settled."""
        self.all_delivered()
        contenders = [Contender(f"{tag}-{i}", shape) for i, shape in enumerate(shapes)]
        numbers = [i % SHARDS for i in range(len(contenders))]
        while waiting := [c for c in contenders if not c.settled]:
            assert all(c.attempts < MAX_ATTEMPTS for c in waiting), "a loser is never settled"
            self._turn(waiting, numbers)
            numbers = [self.rng.randrange(SHARDS) for _ in contenders]
        return contenders

    def won(self, contenders: Sequence[Contender]) -> list[str]:
        """The nodes, by name, of those that got one, in the contenders' order."""
        names = {e.node_id: e.row.name for e in self.machine.cluster.nodes.values()}
        return [names[c.node] for c in contenders if c.node]

    def rounds(self, play: Callable[[int], None], *, count: int) -> Counter[str]:
        """Play so many rounds, validating now and then and at the end; conflicts by number."""
        for number in range(count):
            play(number)
            if number % VALIDATE_EVERY == 0:
                self.validate()
        self.validate()
        return Counter(rounds=count, conflicts=self.conflicts) + self.charged

    def _turn(self, waiting: list[Contender], numbers: Sequence[int]) -> None:
        """One decision and one commit for each."""
        by_uid = {c.uid: c for c in waiting}
        for contender, number in zip(waiting, numbers, strict=False):
            self._decide(contender, number)
        incoming = []
        for number, shard in enumerate(self.shards):
            incoming += self._proposals(number, shard, by_uid)
        self.rng.shuffle(incoming)
        verdicts: list[tuple[int, Verdict]] = []
        while incoming:
            size = self.rng.randint(1, len(incoming))
            batch, incoming = incoming[:size], incoming[size:]
            verdicts += self._commit(batch)
        self._tell(verdicts, by_uid)

    def _decide(self, contender: Contender, number: int) -> None:
        shard = self.shards[number]
        while shard.picture.snapshot.version.sequence < contender.after:
            self.deliver(number, 1)
        self.attempt += 1
        contender.attempts += 1
        uid = PodUid(contender.uid)
        member = Member(uid, contender.shape.namespace, contender.uid, 1, 1)
        unit = Unit(UnitId(uid), Attempt(1, self.attempt), (member,), contender.after)
        shard.work_lost()  # another stream: shape numbers begin anew
        shard.work_opened()
        shard.work(ToShard(1, [(1, contender.shape)], [unit]))
        while shard.decide(now=0.0):
            pass

    def _proposals(self, number: int, shard: Shard, by_uid: dict[str, Contender]) -> list[Incoming]:
        answers = shard.take_answers()
        for answer in answers.unplaceable if answers is not None else ():
            assert answer.version.sequence >= by_uid[answer.unit_id].after
            by_uid[answer.unit_id].message = answer.diagnosis.message
        batch = shard.take_proposals()
        if batch is None:
            return []
        return [
            Incoming(f"shard-{number}", number, 1, p, (by_uid[p.unit.unit_id].shape,))
            for p in batch.proposals
        ]

    def _commit(self, batch: list[Incoming]) -> list[tuple[int, Verdict]]:
        machine = self.machine
        self.write_pending()
        taken = machine.take(batch)
        replies = self.ledger.reserve(taken.units) if taken.units else []
        settled = machine.settle(taken, replies)
        assert not settled.drift, "the ledger refused what memory allowed"
        self.publish()
        return settled.verdicts

    def write_pending(self) -> None:
        """What the ledger must know before the next reservation."""
        accounts, removed = self.machine.book.accounts()
        self.ledger.set_accounts(accounts, removed)
        self.ledger.transition(self.machine.book.take_ops())

    def _tell(self, verdicts: list[tuple[int, Verdict]], by_uid: dict[str, Contender]) -> None:
        self.rng.shuffle(verdicts)
        for number, verdict in verdicts:
            self.deliver(number, self.rng.randint(0, 3))
            self.shards[number].verdicts(VerdictBatch(1, [verdict]), now=0.0)
            contender = by_uid[verdict.unit_id]
            if verdict.kind is VerdictKind.COMMITTED:
                contender.node = verdict.nodes[0]
            else:
                assert verdict.kind is VerdictKind.CONFLICT, verdict
                contender.conflicts.append(verdict.cause.name)
                contender.after = verdict.sequence
                self.conflicts += 1
        for number in {number for number, _ in verdicts}:
            self.shards[number].take_answers()

    def leave(self, contenders: Sequence[Contender]) -> None:
        """Pods that were placed go again, and nobody remembers the units."""
        self._guarded()
        for contender in contenders:
            if contender.node:
                self.machine.pod_gone(contender.uid)
        self.machine.acknowledge(self.machine.outcomes.last)
        self.write_pending()

    def _guarded(self) -> None:
        """What pods in flight are charged beside their room, the ledger alone gives nobody else."""
        for entry in self.ledger.entries():
            for charge in entry.charges:
                rival = LedgerMember("rival", entry.node_uid, 1, (), (charge,))
                (reply,) = self.ledger.reserve([LedgerUnit("rival", Attempt(1, 1), (rival,))])
                assert (reply.kind, reply.account) == (ReserveKind.NO_FIT, charge.account)
                self.ledger.transition([LedgerOp.forget_unit("rival")])
                self.charged[account_kind(charge.account)] += 1

    def validate(self) -> None:
        """Everything is as it was, at the Binder, in the ledger and at the shards."""
        self.all_delivered()
        self.machine.validate()
        for shard in self.shards:
            shard.validate()
        used = {
            (uid, name): amount
            for uid, sums in self.ledger.sums().items()
            for name, amount in sums.items()
            if amount
        }
        assert not used, f"the ledger holds {used}"
