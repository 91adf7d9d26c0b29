"""Rows 7–12, 44: dispatchers and shards die, stand still, are not understood or not trusted."""

from __future__ import annotations

import asyncio

from stretto.cli.supervisor import answers
from tests.matrix.field import SHARDS, Field, until
from tests.matrix.relay import ProposalRelay
from tests.matrix.row import row
from tests.matrix.rows_binder import STANDING_S, succeeded
from tests.rpc.certificates import Issued

DEAD_PEER_S = 20.0
"""A peer that says nothing is given up after this long at the latest."""


@row(7, "D SIGKILL / SIGSTOP", "units re-dispatched, I4 holds in ≤ 20 s")
async def dispatcher_gone(field: Field) -> None:
    await field.load.start()
    dispatcher = await field.leader("dispatcher")
    field.load.fault_begins()
    if field.rng.random() < 0.5:
        await field.kill(dispatcher)
        await field.load.finish()
        return
    pid = await field.freeze(dispatcher)
    await asyncio.sleep(STANDING_S)
    await until(
        lambda: succeeded(field, dispatcher),
        timeout_s=20,
        what="another dispatcher leads meanwhile",
    )
    field.thaw(pid)
    await field.exits(dispatcher, pid=pid)
    await field.load.finish()


@row(8, "Two Ds (Lease deleted by hand)", "lower epoch ignored")
async def lease_deleted(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/stretto-dispatcher"
    for _ in range(3):
        status, _reply = await field.cluster.answer("DELETE", path)
        field.saw("lease deleted", int(status == 200))
        await asyncio.sleep(field.rng.uniform(0.5, 2.0))
    await field.load.finish()
    await field.leader("dispatcher")


@row(9, "S SIGKILL with units in hand", "redelivered ≤ 1 s after stream break")
async def shard_killed(field: Field) -> None:
    await field.load.start(pause_s=0.3)
    field.load.fault_begins()
    shard, pid = await field.freeze_at_work()
    field.thaw(pid)
    await field.kill(shard)
    await field.load.finish()


@row(10, "S SIGSTOP", "its units are redelivered; late answers ignored")
async def shard_stands_still(field: Field) -> None:
    await field.load.start(pause_s=0.3)
    field.load.fault_begins()
    _, pid = await field.freeze_at_work()
    await field.load.finish(within_s=DEAD_PEER_S + 20)
    field.thaw(pid)  # what it answers now is late


@row(11, "Duplicate / reordered proposals", "same verdict, one entry")
async def proposals_doubled(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    links = field.between(ours="shard", peer=binder)
    links = [link for link in links if link.name.endswith(f">{binder}")]
    async with ProposalRelay(links[0].target, rng=field.rng) as relay:
        field.load.fault_begins()
        for link in links:
            link.lead_to(relay.address)
        await field.load.finish()
        for link in links:
            link.heal()
            link.cut()
        field.evidence.update(relay.counts)


@row(12, "gRPC RST mid-stream, half-open", "keepalive ≤ 20 s, resume, no loss")
async def streams_break(field: Field) -> None:
    await field.load.start()
    field.load.fault_begins()
    between = [*field.between(ours="shard"), *field.between(ours="dispatcher", peer="binder")]
    for _ in range(3):
        for link in between:
            if field.rng.random() < 0.7:
                link.cut()
        await asyncio.sleep(field.rng.uniform(0.5, 1.5))
    shard = field.rng.choice(SHARDS)
    for link in field.between(ours=shard):
        link.half_open = True
        link.black()
    await field.load.finish(within_s=DEAD_PEER_S + 20)


@row(44, "Cert expired / CA rotated", "reload without restart; deny on expiry", alone=True,
     certified=True)  # fmt: skip
async def certificates_change(field: Field) -> None:
    await field.load.start(pause_s=0.25)
    field.load.fault_begins()
    starts = {name: role.starts for name, role in field.stack.supervisor.roles.items()}
    old, new = field.authority, field.another_authority()
    streams = [*field.between(ours="shard"), *field.between(ours="dispatcher", peer="binder")]
    kinds = ("binder", "dispatcher", "shard")

    async def renew(trusted: bytes, **issued: Issued) -> None:
        """Files change; then every stream breaks, so that all dial anew."""
        for kind in kinds:
            mine = field.certificates[kind]
            if kind in issued:
                mine.become(issued[kind])
            mine.authority.write_bytes(trusted)
        field.saw("certificates changed")
        for link in streams:
            link.cut()
        before = field.cluster.binds
        await until(lambda: field.cluster.binds > before + 20, timeout_s=40, what="binds again")

    both = old.file.read_bytes() + new.file.read_bytes()
    await renew(old.file.read_bytes(), **{k: old.issue(f"stretto-{k}") for k in kinds})
    await renew(both)
    await renew(both, **{k: new.issue(f"stretto-{k}") for k in kinds})
    await renew(new.file.read_bytes())
    # The shards' certificate has run out: they are let in no more, until there is another.
    good = new.issue("stretto-shard")
    field.certificates["shard"].become(new.issue("stretto-shard", days=0))
    field.certificates["shard"].authority.write_bytes(new.file.read_bytes())
    for link in streams:
        link.cut()
    url = field.stack.supervisor.roles[SHARDS[0]].ready_url

    async def shut_out() -> bool:
        return not await answers(url)

    await until(shut_out, timeout_s=40, what="a shard with an expired certificate is shut out")
    field.saw("expired certificate refused")
    field.certificates["shard"].become(good)
    await field.load.finish()
    assert starts == {n: each.starts for n, each in field.stack.supervisor.roles.items()}
