"""How long a Binder needs for its ledger after it was lost (R9): the part after the lists."""

from __future__ import annotations

import pathlib
import tempfile
import time

from binder.machine import Machine
from binder.recovery import rebuild
from stretto.ledger.client import Ledger
from stretto.ledger.server import EmbeddedServer
from stretto.placement.profiles import Profiles
from tests.binder.world import node_of, shape_of

GOAL_S = 20.0


async def run(*, nodes: int, pods: int) -> int:
    """Print the times; 1 if the goal is missed."""
    machine = Machine(epoch=7, profiles=Profiles.default(("stretto",)))
    shapes = [shape_of(cpu=10 + number) for number in range(20)]
    for number in range(nodes):
        machine.node_seen(node_of(f"n{number}", cpu=10**6, pods=1_000))
    for number in range(pods):
        name = f"n{number % nodes}"
        machine.pod_seen(f"p{number}", node_name=name, shape=shapes[number % 20])
    machine.effects()
    with tempfile.TemporaryDirectory(prefix="stretto-rebuild-") as folder:
        async with EmbeddedServer(folder=pathlib.Path(folder)) as server:
            ledger = await Ledger.open(server.url, owner="o")
            began = time.monotonic()
            await ledger.install(7)
            for uid in list(machine.cluster.pods):
                machine.book.adopt_bound(uid, namespace="default", name=uid)
            accounts = [machine.book.rooms.account(uid) for uid in machine.cluster.nodes]
            await ledger.set_accounts(accounts)
            await ledger.transition(machine.book.take_ops())
            await ledger.opened()
            adopted = time.monotonic() - began
            began = time.monotonic()
            await rebuild(machine, ledger)
            again = time.monotonic() - began
            count = len(await ledger.entries())
            await ledger.close()
    print(
        f"{nodes:,} nodes, {pods:,} pods: a successor takes {adopted:.1f} s to write a lost ledger "
        f"from the API's lists, a living binder {again:.1f} s from memory (goal {GOAL_S:g} s); "
        f"{count:,} entries"
    )
    return int(max(adopted, again) > GOAL_S or count != pods)
