"""Rows 1–6: the Binder dies, stands still or is wedged at the moments that matter."""

from __future__ import annotations

import asyncio

from tests.matrix.field import Field, until
from tests.matrix.http_link import Act, HttpLink
from tests.matrix.row import row

STANDING_S = 6.0
"""Longer than a Lease of 3 s and its takeover."""


@row(1, "B SIGKILL after reserve", "successor touches, frees, pod re-placed; leak 0")
async def killed_after_reserve(field: Field) -> None:
    await killed_at(field, "binder.after_reserve", skip=field.rng.randrange(4))


@row(3, "B SIGKILL after 201", "entry → bound from watch")
async def killed_after_answer(field: Field) -> None:
    await killed_at(field, "binder.after_answer", skip=field.rng.randrange(20))


async def killed_at(field: Field, point: str, *, skip: int) -> None:
    """The leader dies at a point, after it has passed there ``skip`` times."""
    binder = await leader_under_load(field)
    field.load.fault_begins()
    field.arm(binder, point, "kill", skip=skip)
    await field.struck()
    await field.load.finish()


@row(2, "B SIGKILL after POST sent", "bound or fenced, never two")
async def killed_after_post(field: Field) -> None:
    link = await killed_with_binds_held(field)
    await asyncio.sleep(field.rng.uniform(0, 6))  # before, while or after the successor opens
    link.release()
    await field.load.finish()


@row(4, "POST held, B replaced, then delivered", "409, no overcommit")
async def delivered_late(field: Field) -> None:
    link = await killed_with_binds_held(field)
    await field.load.finish()
    before = dict(field.cluster.nodes)
    link.release()
    await until(lambda: len(link.late) == link.held, timeout_s=20, what="late binds answered")
    assert set(link.late) <= {404, 409}, link.late
    assert field.cluster.nodes == before, "a late bind moved a pod"


async def killed_with_binds_held(field: Field) -> HttpLink:
    """The leader dies while some of its binds are on their way, on the link."""
    binder = await leader_under_load(field)
    link = field.api_link(binder)
    field.load.fault_begins()
    link.on(Act.HOLD)
    await until(lambda: link.held >= 5, timeout_s=20, what="binds on their way")
    link.hold_no_more()
    await field.kill(binder)
    return link


async def leader_under_load(field: Field) -> str:
    """The Binder that leads once pods are being bound."""
    await field.load.start()
    return await field.leader("binder")


@row(5, "B SIGSTOP longer than its Lease, SIGCONT", "epoch rejected, POSTs 409, exits")
async def stands_still(field: Field) -> None:
    binder = await leader_under_load(field)
    field.load.fault_begins()
    pid = await field.freeze(binder)
    await asyncio.sleep(STANDING_S)
    await until(
        lambda: succeeded(field, binder), timeout_s=20, what="another Binder leads meanwhile"
    )
    field.thaw(pid)
    await field.exits(binder, pid=pid)
    await field.load.finish()


async def succeeded(field: Field, role: str) -> bool:
    """Whether the Lease names another than ``role``."""
    return await field.stack.leader(role.removesuffix("-2")) not in ("", role)


@row(6, "B's event loop wedged longer than its Lease", "lease lost, exit")
async def wedged(field: Field) -> None:
    binder = await leader_under_load(field)
    pid = await field.running(binder)
    field.load.fault_begins()
    field.arm(binder, "binder.round", "wedge", seconds=STANDING_S + 2)
    await field.struck()
    await field.exits(binder, pid=pid, within_s=30)
    await field.load.finish()
