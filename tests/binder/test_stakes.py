"""Stakes: who gets one, what it keeps from whom, and how it ends."""

from __future__ import annotations

import msgspec

from binder.proposals import Incoming
from binder.stakes import EXPIRE_S, FORGET_S, MATURE_S
from stretto.model.shape import Shape
from stretto.model.unit import Cause, Verdict, VerdictKind
from stretto.placement.kernel import Kernel
from stretto.placement.profiles import Profiles
from stretto.snapshot.stakes import StakeRow
from tests.binder.world import ApiPod, World, shape_of

BIG, SMALL = shape_of(4000), shape_of(1000)


class Staking(World):
    """Ten nodes of four cpus; small pods run on the first ones."""

    def __init__(self, *, full: int = 2) -> None:
        super().__init__()
        self.shard = Kernel(self.follower, Profiles.default(("stretto",)))
        for number in range(10):
            self.node(f"n{number}")
        self.small: dict[str, list[ApiPod]] = {}
        for number in range(full):
            for each in range(4):
                self.runs(f"s{number}-{each}", SMALL, f"n{number}")
        self.deliver(99)
        self.round()

    def runs(self, name: str, shape: Shape, node: str) -> None:
        """A pod that somebody has put on a node."""
        made = self.api.create(name, shape)
        self.api.put(made, node, foreign=True)
        self.small.setdefault(node, []).append(made)

    def ends(self, node: str, count: int = 1) -> None:
        """Pods of a node end."""
        for _ in range(count):
            self.api.delete(self.small[node].pop())
        self.deliver(99)
        self.round()

    def asks(self, *pods: ApiPod, nodes: tuple[str, ...], **options: str) -> Verdict:
        """A starved unit proposes nodes."""
        incoming = self.incoming(*pods, nodes=nodes, **options)
        unit = msgspec.structs.replace(incoming.proposal.unit, stake=True)
        proposal = msgspec.structs.replace(incoming.proposal, unit=unit)
        return self.propose(incoming._replace(proposal=proposal))[0]

    def tries(self, pod: ApiPod, node: str) -> Verdict:
        """A unit proposes a node."""
        return self.propose(self.incoming(pod, nodes=(node,)))[0]

    def seen(self, key: str) -> StakeRow | None:
        """The stake as shards see it."""
        return self.follower.stakes.get(key)

    def fits(self, shape: Shape, node: str) -> bool:
        """Whether a shard would place a pod there."""
        row = self.follower.row_of_name(node)
        assert row is not None
        return self.shard.check_one(shape, row) is Cause.NONE

    def tick(self, now: float) -> None:
        self.machine.committer.stakes.tick(now)
        self.round()
        self.machine.validate()


def test_room_that_comes_free_on_a_staked_node_is_kept_until_the_unit_fits():
    world = Staking()
    big = world.api.create("big", BIG)
    verdict = world.asks(big, nodes=("n0",))
    assert (verdict.kind, verdict.cause) == (VerdictKind.CONFLICT, Cause.STAKED)
    assert verdict.sequence == world.follower.version.sequence
    assert world.seen(big.uid) is not None
    world.ends("n0")
    world.ends("n1")
    assert not world.fits(SMALL, "n0")
    assert world.fits(SMALL, "n1"), "others are not concerned"
    small = world.api.create("s", SMALL)
    assert world.tries(small, "n0").cause is Cause.CAPACITY
    world.ends("n0", 3)
    verdict = world.tries(big, "n0")
    assert verdict.kind is VerdictKind.COMMITTED
    assert world.seen(big.uid) is None
    assert verdict.sequence == world.follower.version.sequence, "it ends in the same step"
    world.machine.validate()


def test_a_unit_that_fits_by_now_is_committed_and_gets_no_stake():
    world = Staking()
    big = world.api.create("big", BIG)
    assert world.asks(big, nodes=("n5",)).kind is VerdictKind.COMMITTED
    assert not len(world.machine.committer.stakes)


def test_units_of_more_priority_do_not_leave_the_room():
    world = Staking()
    world.asks(world.api.create("big", BIG), nodes=("n0",))
    world.ends("n0")
    assert world.fits(shape_of(1000, priority=1), "n0")
    assert not world.fits(SMALL, "n0")


def test_one_stake_a_pool_the_first_of_equals_and_higher_priority_takes_over():
    world = Staking()
    first, second = (world.api.create(name, BIG) for name in ("first", "second"))
    high = world.api.create("high", shape_of(4000, priority=9, preemption_policy="Never"))
    assert world.asks(first, nodes=("n0",)).cause is Cause.STAKED
    assert world.asks(second, nodes=("n1",)).cause is Cause.CAPACITY
    assert world.seen(second.uid) is None
    assert world.asks(high, nodes=("n1",)).cause is Cause.STAKED
    assert world.seen(first.uid) is None
    assert world.seen(high.uid) is not None
    other = world.api.create("other", shape_of(4000, node_selector=(("zone", "a"),)))
    world.node("z0", labels=(("zone", "a"),))
    world.runs("zs", SMALL, "z0")
    world.deliver(99)
    assert world.asks(other, nodes=("z0",)).cause is Cause.STAKED, "another pool"
    world.machine.validate()


def test_a_stake_names_no_more_than_its_share_of_the_pool():
    world = Staking(full=4)
    pods = [world.api.create(f"g{n}", BIG) for n in range(4)]
    assert world.asks(*pods, nodes=("n0", "n1", "n2", "n3")).cause is Cause.CAPACITY
    assert world.asks(*pods[:3], nodes=("n0", "n1", "n2")).cause is Cause.STAKED
    assert world.machine.committer.stakes.kept_nodes == 3
    assert world.machine.committer.stakes.counts["refused"] == 1


def test_a_gang_keeps_room_for_all_its_members_under_its_groups_name():
    world = Staking()
    half = shape_of(2000, group="default/g")
    pods = [world.api.create(f"g{n}", half) for n in range(4)]
    assert world.asks(*pods, nodes=("n0", "n0", "n1", "n1")).cause is Cause.STAKED
    row = world.seen("group/default/g")
    assert row is not None
    assert [(seat.node, seat.count) for seat in row.seats] == [("n0", 2), ("n1", 2)]
    world.ends("n0", 4)
    world.ends("n1", 3)
    assert not world.fits(SMALL, "n0")
    assert world.tries(pods[0], "n0").kind is VerdictKind.COMMITTED, "its own are not kept out"


def test_young_stakes_lend_their_room_to_those_who_can_be_made_to_leave():
    world = Staking()
    big = world.api.create("big", shape_of(4000, priority=5))
    world.asks(big, nodes=("n0",))
    world.ends("n0")
    assert world.fits(SMALL, "n0")
    assert not world.fits(shape_of(1000, priority=5), "n0")
    world.tick(100.0)
    world.tick(100.0 + MATURE_S)
    assert not world.fits(SMALL, "n0")


def test_a_fruitless_stake_ends_and_its_nodes_are_remembered():
    world = Staking()
    big = world.api.create("big", BIG)
    world.asks(big, nodes=("n0",))
    world.tick(100.0)
    world.ends("n0")
    world.tick(100.0 + EXPIRE_S - 1)
    world.tick(100.0 + EXPIRE_S + 1)
    row = world.seen(big.uid)
    assert row is not None
    assert row.seats, "something has come free meanwhile"
    world.tick(99.0 + 2 * EXPIRE_S)
    row = world.seen(big.uid)
    assert row is not None
    assert (row.seats, row.passed) == ((), ("n0",))
    assert world.fits(SMALL, "n0")
    assert world.asks(big, nodes=("n1",)).cause is Cause.STAKED
    row = world.seen(big.uid)
    assert row is not None
    assert row.passed == ("n0",)


def test_what_came_to_nothing_is_forgotten_in_the_end():
    """Its unit may have gone while no dispatcher was there to say so."""
    world = Staking()
    big = world.api.create("big", BIG)
    world.asks(big, nodes=("n0",))
    world.tick(1.0)
    world.tick(1.0 + EXPIRE_S)
    world.tick(EXPIRE_S + FORGET_S)
    row = world.seen(big.uid)
    assert row is not None
    assert not row.seats
    world.tick(1.0 + EXPIRE_S + FORGET_S)
    assert world.seen(big.uid) is None
    world.machine.validate()


def test_a_stake_ends_with_its_unit():
    world = Staking()
    big = world.api.create("big", BIG)
    world.asks(big, nodes=("n0",))
    world.machine.withdraw(big.uid)
    world.round()
    assert world.seen(big.uid) is None
    other = world.api.create("other", BIG)
    world.asks(other, nodes=("n1",))
    world.api.put(other, "n5", foreign=True)
    world.deliver(99)
    world.tick(1.0)
    assert world.seen(other.uid) is None, "somebody else has bound it"


def test_a_stake_survives_what_does_not_concern_it():
    world = Staking()
    big = world.api.create("big", BIG)
    world.asks(big, nodes=("n0",))
    incoming: Incoming = world.incoming(big, nodes=("n1",))
    assert world.propose(incoming)[0].cause is Cause.CAPACITY
    assert world.seen(big.uid) is not None
    world.drop_node("n0-uid")
    world.tick(1.0)
    world.machine.validate()


def test_a_unit_that_may_preempt_after_all_swaps_its_stake_for_a_nomination():
    world = Staking()
    big = world.api.create("big", shape_of(4000, priority=5))
    world.asks(big, nodes=("n0",))
    world.ends("n0")
    incoming = world.incoming(big, nodes=("n0",))
    victims = tuple(pod.uid for pod in world.small["n0"])
    proposal = msgspec.structs.replace(incoming.proposal, victims=victims)
    verdict = world.propose(incoming._replace(proposal=proposal))[0]
    assert verdict.kind is VerdictKind.NOMINATED
    assert world.seen(big.uid) is None
    assert not world.fits(SMALL, "n0")
    world.machine.validate()


def test_who_is_nominated_gets_no_stake():
    world = Staking()
    big = world.api.create("big", BIG)
    world.machine.cluster.nominate(big.uid, node="n1", shape=BIG)
    world.round()
    assert world.asks(big, nodes=("n0",)).cause is Cause.CAPACITY
    assert world.seen(big.uid) is None
