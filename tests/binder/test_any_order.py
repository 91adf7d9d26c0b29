"""Any order of commits, binds, faults, watch events and changes keeps the invariants.

A state machine drives the Binder's brain beside a ledger twin and an API server in memory: requests
are carried out late or never answered, pods are deleted, recreated under their name, changed, and
bound by others; nodes leave and come back. After each step: what the brain, the ledger and a
follower hold agrees; no node holds more of our pods than it has room for; no pod is bound twice.
When all faults end, nothing is left over.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from binder.bindings import ActionKind, Stage
from tests.binder.world import ApiPod, Fate, World, shape_of

pytestmark = pytest.mark.timeout(120)

NODES = ("n1", "n2", "n3")
CPU = 3000
MOST_PODS = 14
SHAPES = (shape_of(1000), shape_of(2000), shape_of(700))


class BinderMachine(RuleBasedStateMachine):
    """See the module docstring."""

    @initialize(alone=st.booleans())
    def begin(self, alone: bool) -> None:
        self.world = World()
        self.alone = alone
        """Nobody else binds and nodes stay: then no node may ever hold more than its room."""
        self.names = 0
        self.incarnations = 0
        self.foreign_on: set[str] = set()
        """Names of nodes on which somebody else has bound: only there may pods exceed the room."""
        for name in NODES:
            self.world.node(name, cpu=CPU, uid=f"{name}-0")
        self.world.round()

    # ---------------------------------------------------------------------------------- choosing
    def pending(self) -> list[ApiPod]:
        held = self.world.machine.bindings
        batch = self.world.batch
        asked = {m.pod_uid for unit in batch.units for m in unit.members} if batch else set()
        return [
            pod
            for pod in self.world.api.pods.values()
            if not pod.node and pod.uid not in held and pod.uid not in asked
        ]

    def present(self) -> list[str]:
        known = self.world.machine.cluster.node_uid_of
        return [name for name in NODES if known(name)]

    # ------------------------------------------------------------------------------------- pods
    @precondition(lambda self: self.world.batch is None and self.present())
    @rule(
        shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
        first=st.integers(0, 2),
        gang=st.booleans(),
        spare=st.booleans(),
    )
    def new_pods(self, shapes: list[Any], first: int, gang: bool, spare: bool) -> None:
        """Pods come and are proposed at once, as a gang or each for itself."""
        world, present = self.world, self.present()
        if len(world.api.pods) > MOST_PODS:
            return
        pods = []
        for shape in shapes:
            self.names += 1
            pods.append(world.api.create(f"p{self.names}", shape))
        nodes = [present[(first + i) % len(present)] for i in range(len(pods))]
        if gang:
            world.proposed.append(world.incoming(*pods, nodes=tuple(nodes)))
        else:
            spares = (present[0],) if spare else ()
            for pod, node in zip(pods, nodes, strict=True):
                world.proposed.append(world.incoming(pod, nodes=(node,), spares=spares))

    @precondition(lambda self: len(self.world.api.pods) > 2)
    @rule(data=st.data(), again=st.booleans(), told=st.booleans())
    def delete(self, data: st.DataObject, again: bool, told: bool) -> None:
        pod = data.draw(st.sampled_from(list(self.world.api.pods.values())))
        self.world.api.delete(pod)
        if again:
            self.world.api.create(pod.name, pod.shape)
        if told and not pod.node:
            binding = self.world.machine.withdraw(pod.uid)
            if binding is not None:
                self.world.follow(binding, binding.withdraw())

    @precondition(lambda self: self.world.api.pods)
    @rule(data=st.data(), shape=st.none() | st.sampled_from(SHAPES))
    def change(self, data: st.DataObject, shape: Any) -> None:
        pod = data.draw(st.sampled_from(list(self.world.api.pods.values())))
        # Only an unbound pod changes its shape here: a resize may exceed the room by its nature.
        self.world.api.touch(pod, None if pod.node else shape)

    @precondition(
        lambda self: not self.alone and any(not pod.node for pod in self.world.api.pods.values())
    )
    @rule(data=st.data(), name=st.sampled_from(NODES))
    def bind_by_others(self, data: st.DataObject, name: str) -> None:
        unbound = [pod for pod in self.world.api.pods.values() if not pod.node]
        pod = data.draw(st.sampled_from(unbound))
        self.world.api.put(pod, name, foreign=True)
        self.foreign_on.add(name)

    # ------------------------------------------------------------------------------------ nodes
    @precondition(lambda self: not self.alone and len(self.present()) > 1)
    @rule(data=st.data(), back=st.booleans())
    def node_leaves(self, data: st.DataObject, back: bool) -> None:
        name = data.draw(st.sampled_from(self.present()))
        if back:
            self.come(name)
        else:
            self.world.drop_node(self.world.machine.cluster.node_uid_of(name))

    @precondition(lambda self: len(self.present()) < len(NODES))
    @rule(name=st.sampled_from(NODES))
    def node_comes(self, name: str) -> None:
        if name not in self.present():
            self.come(name)

    def come(self, name: str) -> None:
        self.incarnations += 1
        # A late bind to the name may land on the new node, which nobody could have known.
        self.foreign_on.add(name)
        self.world.node(name, cpu=CPU, uid=f"{name}-{self.incarnations}")

    # ------------------------------------------------------------------------------------ commits
    @precondition(lambda self: self.world.batch is None and self.pending() and self.present())
    @rule(data=st.data(), size=st.integers(1, 3), spare=st.booleans())
    def propose_again(self, data: st.DataObject, size: int, spare: bool) -> None:
        pods = data.draw(
            st.lists(st.sampled_from(self.pending()), min_size=1, max_size=size, unique_by=id)
        )
        names = st.sampled_from(self.present())
        nodes = tuple(data.draw(names) for _ in pods)
        spares = (data.draw(names),) if spare and len(pods) == 1 else ()
        self.world.proposed.append(self.world.incoming(*pods, nodes=nodes, spares=spares))

    @precondition(lambda self: self.world.batch is None and self.world.proposed)
    @rule()
    def ask_the_ledger(self) -> None:
        self.world.begin()

    @precondition(lambda self: self.world.batch is None and self.world.proposed)
    @rule()
    def commit(self) -> None:
        self.world.begin()
        self.world.finish()

    @precondition(lambda self: self.world.batch is not None)
    @rule()
    def hear_the_ledger(self) -> None:
        self.world.finish()

    @precondition(lambda self: self.world.batch is None)
    @rule()
    def write(self) -> None:
        self.world.round()

    @rule()
    def acknowledge(self) -> None:
        self.world.machine.acknowledge(self.world.machine.outcomes.last)

    # -------------------------------------------------------------------------------------- binds
    @precondition(lambda self: self.world.todo)
    @rule(data=st.data(), fate=st.sampled_from(Fate))
    def act(self, data: st.DataObject, fate: Fate) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.todo)))
        self.world.act(uid, fate)

    @precondition(
        lambda self: any(b.stage is Stage.RESERVED for b in self.world.machine.open.values())
    )
    @rule(data=st.data(), fate=st.sampled_from((Fate.LATE, Fate.LOST_REPLY)))
    def bind_without_answer(self, data: st.DataObject, fate: Fate) -> None:
        open_ones = self.world.machine.open.values()
        fresh = sorted(b.uid for b in open_ones if b.stage is Stage.RESERVED)
        self.world.act(data.draw(st.sampled_from(fresh)), fate)

    @precondition(lambda self: self.world.todo)
    @rule(data=st.data())
    def act_well(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.todo)))
        self.world.act(uid)

    @precondition(lambda self: self.world.api.late)
    @rule(data=st.data())
    def a_late_bind_arrives(self, data: st.DataObject) -> None:
        count = len(self.world.api.late)
        self.world.deliver_late(data.draw(st.integers(0, count - 1)))

    @precondition(lambda self: self.world.api.watch)
    @rule(count=st.integers(1, 3))
    def the_watch_tells(self, count: int) -> None:
        self.world.deliver(count)

    @rule()
    def look_after_the_silent(self) -> None:
        for binding in self.world.machine.endings.doubtful():
            assert binding.uid not in self.world.todo
            self.world.follow(binding, binding.doubt())

    # --------------------------------------------------------------------------------- invariants
    @invariant()
    def brain_and_ledger_agree_with_themselves(self) -> None:
        self.world.check()

    @invariant()
    def every_pod_is_bound_once(self) -> None:
        assert all(len(nodes) == 1 for nodes in self.world.api.binds.values())

    @invariant()
    def no_room_is_given_twice(self) -> None:
        used = dict.fromkeys(NODES, 0)
        for pod in self.world.api.pods.values():
            if pod.node:
                used[pod.node] += dict(pod.shape.requests)["cpu"]
        for name, amount in used.items():
            assert amount <= CPU or name in self.foreign_on, f"{name}: {amount} of {CPU}"

    @invariant()
    def whoever_may_be_bound_holds_an_entry(self) -> None:
        """A late bind that could still land is covered by an entry on its node."""
        entries = {entry.pod_uid: entry for entry in self.world.twin.entries()}
        for post in self.world.api.late:
            pod = self.world.api.pods.get(post.name)
            if pod and (pod.uid, pod.version) == (post.uid, post.version) and not pod.node:
                assert post.uid in entries

    @invariant()
    def bindings_are_never_idle(self) -> None:
        """What is neither bound nor waiting for the watch has a next step."""
        world = self.world
        for uid, binding in world.machine.open.items():
            waits = binding.stage.name == "CONFIRMING"
            assert waits or uid in world.todo or uid in world.rebases, binding.stage.name
        for action in world.todo.values():
            assert action.kind is not ActionKind.NOTHING

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.settle_all()
        world.machine.acknowledge(world.machine.outcomes.last)
        world.settle_all()
        world.check_at_rest()
        assert world.twin.store.units == {}


BinderMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestAnyOrder = BinderMachine.TestCase
