"""Claims in any order of commits, writes, answers, watch events, controllers and people.

An API of volumes, claims and pods is played here; its events reach the Binder late, each kind in
its own order. Whatever happens, a pod is bound only when its claims are, on a node that reaches
their volumes; and when everything has calmed down nothing is held any more.
"""

from __future__ import annotations

import random
from collections import deque

import msgspec
import pytest

from binder.bindings import Stage
from binder.machine import Machine
from binder.prebind import Answer, Nomination, Phase
from binder.proposals import Incoming
from stretto.ledger.twin import LedgerTwin
from stretto.ledger.types import ReserveKind
from stretto.model.shape import Shape
from stretto.model.unit import Attempt, Member, PodUid, Proposal, Unit, UnitId
from stretto.placement.profiles import Profiles
from stretto.snapshot.delta import NodeRow
from stretto.snapshot.volume_rows import CLAIM, VOLUME, ClaimOfVolume, encode_storage
from tests.placement.storage import FAST, GIB, HOST, LOCAL, claim, hosts, key_of, pod, volume

NODES, CLAIMS, STEPS = 3, "abcde", 400


class Api:
    """What is true; events about it wait to be delivered."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.volumes = {}
        self.claims = {}
        self.bound: dict[str, str] = {}
        """Pod uid → node."""
        self.events: dict[str, deque] = {VOLUME: deque(), CLAIM: deque(), "Pod": deque()}
        self.serial = 0

    def fresh(self) -> int:
        self.serial += 1
        return self.serial

    def put(self, row) -> None:
        kind, key = key_of(row)
        (self.volumes if kind == VOLUME else self.claims)[row.name] = row
        self.events[kind].append((self.machine.cluster.object_seen, kind, key, encode_storage(row)))

    def drop(self, row) -> None:
        kind, key = key_of(row)
        del (self.volumes if kind == VOLUME else self.claims)[row.name]
        self.events[kind].append((self.machine.cluster.object_seen, kind, key, None))

    def deliver(self, kind: str) -> None:
        if self.events[kind]:
            call, *arguments = self.events[kind].popleft()
            call(*arguments)

    def change(self, row, **fields):
        changed = msgspec.structs.replace(row, **fields)
        self.put(changed)
        return changed

    # ------------------------------------------------------------------------------ controllers
    def control(self) -> None:
        """The volume controller: a volume that names a claim is bound to it."""
        for row in list(self.volumes.values()):
            owner = None if row.claim is None else self.claims.get(row.claim.name)
            if owner is not None and owner.uid == row.claim.uid and not owner.volume_name:
                self.change(row, phase="Bound")
                self.change(owner, volume_name=row.name, completed=True)

    def provision(self, *, gives_up: bool) -> None:
        for row in list(self.claims.values()):
            if row.storage_class != "fast" or row.volume_name or row.selected_node is None:
                continue
            if gives_up:
                self.change(row, selected_node=None)
            elif not any(v.claim and v.claim.uid == row.uid for v in self.volumes.values()):
                made = volume(f"made-{self.fresh()}", 3, cls="fast", terms=hosts(row.selected_node))
                ref = ClaimOfVolume("default", row.name, row.uid)
                self.put(msgspec.structs.replace(made, claim=ref))

    # ------------------------------------------------------------------------------- our writes
    def write(self, write, *, undo: bool) -> Answer:
        if isinstance(write, Nomination):
            return Answer.DONE
        owner = self.claims.get(write.claim.partition("/")[2])
        if write.volume:
            row = self.volumes.get(write.volume)
            if row is None:
                return Answer.LOST
            ours = row.claim is not None and row.claim.uid == write.claim_uid
            if undo:
                if ours and row.phase != "Bound" and not (owner and owner.volume_name):
                    self.change(row, claim=None)
                return Answer.DONE
            if row.claim is not None:
                return Answer.DONE if ours else Answer.LOST
            name = write.claim.partition("/")[2]
            self.change(row, claim=ClaimOfVolume("default", name, write.claim_uid))
            return Answer.DONE
        if owner is None or owner.uid != write.claim_uid:
            return Answer.LOST
        wanted = None if undo else write.node
        if owner.volume_name or owner.selected_node == wanted:
            return Answer.DONE
        if owner.selected_node not in (None, write.node):
            return Answer.LOST
        self.change(owner, selected_node=wanted)
        return Answer.DONE


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = Machine(epoch=1, profiles=Profiles.default())
        self.ledger = LedgerTwin()
        self.ledger.install(1)
        self.ledger.opened()
        self.api = Api(self.machine)
        for i in range(NODES):
            self.machine.node_seen(
                NodeRow(
                    f"n{i}", f"uid-n{i}", labels=((HOST, f"n{i}"),),
                    allocatable=(("cpu", 64_000), ("memory", 64 * GIB), ("pods", 110)),
                )
            )  # fmt: skip
        for row in (LOCAL, FAST):
            self.machine.cluster.object_seen(*key_of(row), encode_storage(row))
        for name in CLAIMS:
            self.new_claim(name)
        self.pods: dict[str, Shape] = {}
        self.now_s = 0.0
        self.attempts = 0
        self.binds = 0
        self.meant: dict[str, list[str]] = {}
        """Pod → uids of its claims when it was decided."""

    def new_claim(self, name: str) -> None:
        cls = self.rng.choice(("local", "fast"))
        row = claim(name, self.rng.randint(1, 3), cls=cls)
        self.api.put(msgspec.structs.replace(row, uid=f"u{self.api.fresh()}"))

    # ------------------------------------------------------------------------------------- steps
    def step(self) -> None:
        rng, api = self.rng, self.api
        match rng.randrange(18):
            case 0 | 13:
                self.pods[f"p{api.fresh()}"] = pod(*rng.sample(CLAIMS, rng.randint(1, 2)))
            case 1 | 2 | 3:
                self.propose()
            case 4 | 5 | 14 | 15:
                self.prebind(chaos=True)
            case 6:
                api.control()
            case 7:
                api.provision(gives_up=rng.random() < 0.4)
            case 8:
                self.delete_pod()
            case 9:
                self.people()
            case 10:
                self.now_s += rng.choice((1.0,) * 9 + (700.0,))
            case _:
                for kind in (VOLUME, CLAIM, "Pod"):
                    for _ in range(rng.randint(0, 5)):
                        api.deliver(kind)
        self.flush()

    def flush(self) -> None:
        self.machine.effects()
        accounts, removed = self.machine.book.accounts()
        self.ledger.set_accounts(accounts, removed)
        self.ledger.transition(self.machine.book.take_ops())
        self.machine.validate()

    def people(self) -> None:
        """Volumes come and go, and a claim is deleted and made anew."""
        rng, api = self.rng, self.api
        unbound = [row for row in api.volumes.values() if row.phase != "Bound"]
        if rng.random() < 0.6 or not unbound:
            terms = rng.choice((None, hosts(f"n{rng.randrange(NODES)}")))
            cls = rng.choice(("local", "local", "fast"))
            api.put(volume(f"v{api.fresh()}", rng.randint(1, 4), cls=cls, terms=terms))
        elif rng.random() < 0.5:
            api.drop(rng.choice(unbound))
        else:
            row = api.claims[rng.choice(CLAIMS)]
            api.drop(row)
            self.new_claim(row.name)

    def delete_pod(self) -> None:
        if not self.pods:
            return
        uid = self.rng.choice(list(self.pods))
        del self.pods[uid]
        if self.api.bound.pop(uid, None) is not None:
            self.api.events["Pod"].append((self.machine.pod_gone, uid))
            return
        binding = self.machine.withdraw(uid)
        if binding is not None:
            binding.withdraw()
            binding.seen_gone()
            self.machine.endings.stepped(binding)

    def propose(self) -> None:
        held = self.machine.bindings
        waiting = [u for u in self.pods if u not in held and u not in self.api.bound]
        chosen = self.rng.sample(waiting, min(len(waiting), self.rng.randint(1, 3)))
        batch = self.machine.take([self.incoming(uid) for uid in chosen])
        replies = self.ledger.reserve(batch.units) if batch.units else []
        assert all(r.kind is not ReserveKind.NO_FIT for r in replies), replies
        if self.rng.random() < 0.3:  # the watches go on while the ledger is asked
            self.api.deliver(self.rng.choice((VOLUME, CLAIM)))
        meant = {uid: self.claim_uids(uid) for uid in chosen}
        settled = self.machine.settle(batch, replies)
        for reservation in settled.reservations:
            binding = self.machine.bindings[reservation.member.uid]
            self.meant[binding.uid] = meant[binding.uid]
            if binding.stage is Stage.PREBIND:
                self.machine.prebinds.begin(binding, deadline_s=self.now_s + 600.0)
            else:
                self.bind(binding)
        self.machine.acknowledge(self.machine.outcomes.last)

    def claim_uids(self, uid: str) -> list[str]:
        rows = self.machine.cluster.snapshot.volumes.claims
        found = (rows.get(f"default/{c.name}") for c in self.pods[uid].claims)
        return ["" if row is None else row.uid for row in found]

    def incoming(self, uid: str) -> Incoming:
        self.attempts += 1
        shape = self.pods[uid]
        unit = Unit(
            UnitId(uid), Attempt(1, self.attempts), (Member(PodUid(uid), "default", uid, 1, 1),)
        )
        node = self.rng.choice(list(self.machine.cluster.nodes.values())).node_id
        return Incoming("shard-1", 1, 1, Proposal(unit, (node,)), (shape,))

    def prebind(self, *, chaos: bool) -> None:
        """What the shell does for each pod, with answers as bad as they can be."""
        prebinds = self.machine.prebinds
        self.machine.cluster.storage.take_touched()
        prebinds.due.clear()
        for each in list(prebinds.by_uid.values()):
            if each.phase is Phase.OVER:
                continue
            prebinds.look(each, now_s=self.now_s)
            if each.phase is Phase.READY:
                for ready in prebinds.passed(each):
                    ready.binding.prebound()
                    self.bind(ready.binding)
            elif prebinds.undone(each):
                self.give_up(each)
            elif (step := prebinds.step(each)).write is not None:
                dice = self.rng.random() if chaos else 1.0
                answer = Answer.AGAIN
                others = self.machine.cluster.storage.held_by_others
                if step.undo and others(each.binding.uid, step.write.claim):
                    answer = Answer.DONE
                elif dice > 0.15:
                    answer = self.api.write(step.write, undo=step.undo)
                prebinds.answered(each, step, Answer.AGAIN if dice < 0.3 else answer)

    def give_up(self, each) -> None:
        self.machine.prebinds.end(each)
        if each.binding.over:
            return
        if each.withdrawn:
            each.binding.prebound()
            each.binding.seen_gone()
        else:
            each.binding.prebind_failed(each.failure)
        self.machine.endings.stepped(each.binding)

    def bind(self, binding) -> None:
        """The POST and its answer; what the kubelet would find is checked."""
        uid, node = binding.uid, binding.reservation.node_name
        binding.send()
        if uid not in self.pods:
            binding.not_found()
            self.machine.endings.stepped(binding)
            return
        self.binds += 1
        for name in (c.name for c in self.pods[uid].claims):
            row = self.api.claims[name]
            if row.uid not in self.meant[uid]:
                continue  # another claim of this name by now
            assert row.bound, f"{uid} is bound before its claim {name}"
            terms = self.api.volumes[row.volume_name].terms
            assert terms is None or node in terms[0].expressions[0].values
        self.api.bound[uid] = node
        binding.posted()
        self.machine.endings.stepped(binding)
        seen = self.machine.pod_seen
        self.api.events["Pod"].append((lambda u, n, s: seen(u, node_name=n, shape=s), uid, node,
                                       self.pods[uid]))  # fmt: skip

    def calm(self) -> None:
        """Nobody disturbs any more; everybody goes in the end."""
        for _ in range(60):
            for kind, waiting in self.api.events.items():
                for _ in range(len(waiting)):
                    self.api.deliver(kind)
            self.api.control()
            self.api.provision(gives_up=False)
            self.prebind(chaos=False)
            self.now_s += 20.0
            self.flush()
        assert not self.machine.prebinds.by_uid, "some wait for ever"
        for uid in list(self.pods):
            self.delete_pod_of(uid)
        for _ in range(len(self.api.events["Pod"])):
            self.api.deliver("Pod")
        self.flush()
        self.flush()

    def delete_pod_of(self, uid: str) -> None:
        del self.pods[uid]
        if self.api.bound.pop(uid, None) is not None:
            self.api.events["Pod"].append((self.machine.pod_gone, uid))


@pytest.mark.parametrize("seed", range(12))
def test_claims_are_bound_before_their_pods_and_nothing_is_held_in_the_end(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.calm()
    machine = world.machine
    assert not machine.bindings
    assert not machine.cluster.snapshot.volumes.assumed
    assert not any(name.partition(" ")[2] for name, sums in world.ledger.sums().items() if sums
                   and any(sums.values()))  # fmt: skip
    effective = machine.cluster.snapshot.volumes
    for name, row in world.api.volumes.items():
        assert effective.volumes[name] == row, "the log says what the API says"
    for name, row in world.api.claims.items():
        assert effective.claims[f"default/{name}"] == row
    assert world.binds > 3, "hardly anybody came through"
