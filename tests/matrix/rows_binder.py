"""Rows 1–6: the Binder dies, stands still or is wedged at the moments that matter."""

from __future__ import annotations

import asyncio

from tests.matrix.field import Field, until
from tests.matrix.http_link import Act
from tests.matrix.row import row

STANDING_S = 6.0
"""Longer than a Lease of 3 s and its takeover."""


@row(1, "B SIGKILL after reserve", "successor touches, frees, pod re-placed; leak 0")
async def killed_after_reserve(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    field.load.fault_begins()
    field.arm(binder, "binder.after_reserve", "kill", skip=field.rng.randrange(4))
    await field.struck()
    await field.load.finish()


@row(2, "B SIGKILL after POST sent", "bound or fenced, never two")
async def killed_after_post(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    link = field.api_link(binder)
    field.load.fault_begins()
    link.on(Act.HOLD)
    await until(lambda: link.held >= 5, timeout_s=20, what="binds on their way")
    link.hold_no_more()
    await field.kill(binder)
    await asyncio.sleep(field.rng.uniform(0, 6))  # before, while or after the successor opens
    link.release()
    await field.load.finish()


@row(3, "B SIGKILL after 201", "entry → bound from watch")
async def killed_after_answer(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    field.load.fault_begins()
    field.arm(binder, "binder.after_answer", "kill", skip=field.rng.randrange(20))
    await field.struck()
    await field.load.finish()


@row(4, "POST held, B replaced, then delivered", "409, no overcommit")
async def delivered_late(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
    link = field.api_link(binder)
    field.load.fault_begins()
    link.on(Act.HOLD)
    await until(lambda: link.held >= 5, timeout_s=20, what="binds on their way")
    link.hold_no_more()
    await field.kill(binder)
    await field.load.finish()
    before = dict(field.cluster.nodes)
    link.release()
    await until(lambda: len(link.late) == link.held, timeout_s=20, what="late binds answered")
    assert set(link.late) <= {404, 409}, link.late
    assert field.cluster.nodes == before, "a late bind moved a pod"


@row(5, "B SIGSTOP longer than its Lease, SIGCONT", "epoch rejected, POSTs 409, exits")
async def stands_still(field: Field) -> None:
    await field.load.start()
    binder = await field.leader("binder")
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
    await field.load.start()
    binder = await field.leader("binder")
    pid = await field.running(binder)
    field.load.fault_begins()
    field.arm(binder, "binder.round", "wedge", seconds=STANDING_S + 2)
    await field.struck()
    await field.exits(binder, pid=pid, within_s=30)
    await field.load.finish()
