"""What a scenario acts on: all roles as processes, links between every two of them, and load.

Two dispatchers, two Binders and two shards run beside a real Valkey server; the API server is the
simulated one, or the real one where a row needs it. Each role dials its peers, its ledger and its
API server through a link of its own. Leases last 3 s, and a watch may be silent for 8 s on the
simulated API server; nothing else is shortened.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from stretto.audit.checker import check, read_history
from stretto.audit.findings import Findings
from stretto.cli.run import Ports
from stretto.simulator.cluster import SimulatedCluster
from stretto.simulator.settings import KubeletMode, SimulatorSettings
from tests.e2e.stack import StackSettings, until
from tests.kube_env.control_plane import ControlPlane
from tests.matrix import failpoints
from tests.matrix.clocks import Clock, clocks_for
from tests.matrix.cluster import NODE_PODS, NODES, Cluster
from tests.matrix.failpoints import Order
from tests.matrix.http_link import HttpLink
from tests.matrix.link import Link
from tests.matrix.load import Load
from tests.matrix.role import CONSTANTS
from tests.matrix.roles import BINDERS, DISPATCHERS, SHARDS, MatrixStack
from tests.rpc.certificates import Authority, Issued

CHECK_S = 12.0
"""For the last writes to reach the files that the history is read from."""
CALM_S = 60.0
LOOK_S = 0.1
HELD = "stretto_dispatcher_shard_held"
REFUSED_S = 9.0
"""Age of a Binder's picture from which on it commits nothing, instead of 30 s."""
SHORTER = {
    "binder/stretto.kube.reflector:Reflector.__init__:silence_s": 8.0,
    "dispatcher/stretto.kube.reflector:Reflector.__init__:silence_s": 8.0,
    "binder/binder.watches:MAX_SILENCE_S": REFUSED_S,
}
"""Only with the simulated API server, whose bookmarks come every 2 s."""
AUDITED = {"binder/binder.committer:CommitLoop.__init__:audit_period_s": 5.0}


class NotPossibleHereError(Exception):
    """This machine cannot make the fault; the row is inconclusive."""


class Field:
    """``async with Field(folder, seed=7) as field``; rows run on it one after another."""

    def __init__(
        self, folder: pathlib.Path, *, seed: int, plane: ControlPlane | None = None
    ) -> None:
        self.folder = folder
        self.plane = plane
        self.rng = random.Random(seed)
        self.control = folder / "control"
        self.links: dict[str, Link] = {}
        self.simulated: SimulatedCluster | None = None
        self.evidence: Counter[str] = Counter()
        """What the faults of the row that runs did."""
        self.load = Load(self, name="none")
        self.certified = False
        self.certificates: dict[str, Issued] = {}
        """By kind of role, where the field is certified."""
        self.wants_disk = False
        self.own_disk = False
        self.spoilt = False
        """The field cannot be used for another row."""
        self.clocks: dict[str, Clock] = {}
        """By role; empty where they cannot be made."""
        self.rounds = 5
        """Of row 49."""
        self.known: set[str] = set()
        """Violations already told."""
        self.stood_still_s = 0.0
        """The longest time that this process, and so links and API server, did nothing."""
        self._stopped: set[int] = set()
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._enter()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def _enter(self) -> None:
        self.control.mkdir(parents=True)
        look = asyncio.create_task(self._look_at_the_time())
        self._open.callback(look.cancel)
        url, token, tls = await self._api_server()
        self.cluster = await self._open.enter_async_context(Cluster(url, token=token, tls=tls))
        await self._open.enter_async_context(self.cluster.watching())
        self.clocks = clocks_for((*BINDERS, *DISPATCHERS, *SHARDS), self.control)
        constants = AUDITED | (SHORTER if self.plane is None else {})
        (self.control / CONSTANTS).write_text(json.dumps(constants))
        for number in range(NODES):
            await self.cluster.create_node(f"n-{number}", pods=str(NODE_PODS))
        settings = StackSettings(standbys=True, flags=self._certify() if self.certified else {})
        stack_folder = self.folder / "stack"
        stack_folder.mkdir()
        self.own_disk = self.wants_disk and self._mount()
        self.stack = MatrixStack(stack_folder, self.kubeconfig, settings)
        self.stack.links, self.stack.control = self.links, self.control
        await self._make_links(settings, url=url, token=token, tls=tls)
        await self.stack.__aenter__()
        self._open.push_async_callback(self._leave)

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _look_at_the_time(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self.stood_still_s = max(self.stood_still_s, time.monotonic() - began - LOOK_S)

    async def _leave(self) -> None:
        self._wake_all()
        await self.stack._stop(failed=False)

    async def _api_server(self) -> tuple[str, str, ssl.SSLContext | None]:
        self.kubeconfig = self.folder / "kubeconfig"
        if self.plane is not None:
            self.kubeconfig = self.plane.kubeconfig
            trust = ssl.create_default_context(cafile=str(self.plane.authority))
            return self.plane.url, self.plane.admin_token, trust
        settings = SimulatorSettings(
            kubeconfig=self.kubeconfig, kubelet=KubeletMode.RUN, seed=self.rng.randrange(1 << 30),
            bookmark_s=2.0,
        )  # fmt: skip
        self.simulated = await self._open.enter_async_context(SimulatedCluster(settings))
        return self.simulated.url, "", None

    async def _make_links(
        self, settings: StackSettings, *, url: str, token: str, tls: ssl.SSLContext | None
    ) -> None:
        first, second = settings.ports, settings.standby_ports
        listens = {
            "binder": first.binder, "binder-2": second.binder,
            "dispatcher": first.dispatcher, "dispatcher-2": second.dispatcher,
        }  # fmt: skip
        pairs = [(d, b) for d in (*DISPATCHERS, *SHARDS) for b in BINDERS]
        pairs += [(s, d) for s in SHARDS for d in DISPATCHERS]
        for ours, peer in pairs:
            await self._link(Link(f"{ours}>{peer}", f"127.0.0.1:{listens[peer]}", rng=self.rng))
        api = url.partition("://")[2]
        for role in (*BINDERS, *DISPATCHERS):
            await self._link(HttpLink(f"{role}>api", api, tls=tls, token=token, rng=self.rng))
        # The server makes its socket when it starts; links dial it later than that.
        socket = str((self.stack.folder / "ledger" / "server.sock").resolve())
        for role in BINDERS:
            path = str(self.folder / f"{role}.sock")
            await self._link(Link(f"{role}>ledger", socket, path=path, rng=self.rng))

    def _certify(self) -> dict[str, list[str]]:
        """A certificate for each kind of role, and the flags that name it."""
        self.authority = Authority(self.folder / "authority")
        kinds = ("binder", "dispatcher", "shard")
        self.certificates = {kind: self.authority.issue(f"stretto-{kind}") for kind in kinds}
        return {kind: issued.flags() for kind, issued in self.certificates.items()}

    def another_authority(self) -> Authority:
        """That nobody trusts yet."""
        return Authority(self.folder / "another-authority", name="another")

    async def _link(self, link: Link) -> None:
        self.links[link.name] = await self._open.enter_async_context(link)

    # --- what scenarios ask for -------------------------------------------------------------------

    def api_link(self, role: str) -> HttpLink:
        """A role's way to the API server."""
        link = self.links[f"{role}>api"]
        assert isinstance(link, HttpLink)
        return link

    def ledger_link(self, role: str) -> Link:
        """A Binder's way to the ledger."""
        return self.links[f"{role}>ledger"]

    def between(self, *, ours: str = "", peer: str = "") -> list[Link]:
        """Links by the beginning of the names of their ends."""
        ends = {name: name.split(">") for name in self.links}
        return [
            self.links[name]
            for name, (a, b) in ends.items()
            if a.startswith(ours) and b.startswith(peer)
        ]

    def saw(self, what: str, count: int = 1) -> None:
        """The fault did something."""
        self.evidence[what] += count

    async def leader(self, role: str) -> str:
        """The process that leads; waits for one."""
        name = ""

        async def known() -> bool:
            nonlocal name
            name = await self.stack.leader(role)
            return bool(name)

        await until(known, timeout_s=40, what=f"a leading {role}")
        return name

    async def follower(self, role: str) -> str:
        """The one that stands by."""
        leads = await self.leader(role)
        return next(n for n in (role, f"{role}-2") if n != leads)

    async def kill(self, name: str) -> None:
        """SIGKILL; it is started again."""
        await self.running(name)
        await self.stack.kill(name)
        self.saw(f"SIGKILL {name}")

    async def running(self, name: str) -> int:
        """Wait until a role has a process; its id."""
        role = self.stack.supervisor.roles[name]
        await until(lambda: role.process is not None, timeout_s=20, what=f"{name} started")
        return self.stack.pid(name)

    async def freeze(self, name: str) -> int:
        """SIGSTOP; the process id, for :meth:`thaw`."""
        pid = await self.running(name)
        self.stop_pid(pid)
        self.saw(f"SIGSTOP {name}")
        return pid

    def stop_pid(self, pid: int) -> None:
        """SIGSTOP any process of ours; it goes on at the latest when the row ends."""
        os.kill(pid, signal.SIGSTOP)
        self._stopped.add(pid)

    def thaw(self, pid: int) -> None:
        """SIGCONT."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        self._stopped.discard(pid)

    def _wake_all(self) -> None:
        for pid in list(self._stopped):
            self.thaw(pid)

    def arm(self, role: str, point: str, action: str, *, skip: int = 0, seconds: float = 0) -> None:
        """Arm a failpoint of a role."""
        failpoints.arm(self.control, role, point, Order(action, skip=skip, seconds=seconds))

    async def struck(self, *, at_least: int = 1, within_s: float = 30.0) -> None:
        """Wait until armed failpoints have struck."""
        before = self.evidence["failpoint"]

        def enough() -> bool:
            return len(failpoints.fired(self.control)) - self._fired >= before + at_least

        await until(enough, timeout_s=within_s, what="the failpoint strikes")

    async def exits(self, name: str, *, pid: int, within_s: float = 20.0) -> None:
        """Wait until a process has ended by itself, as one must that lost its Lease."""
        role = self.stack.supervisor.roles[name]
        await until(
            lambda: role.process is None or role.process.pid != pid,
            timeout_s=within_s,
            what=f"{name} (pid {pid}) ends",
        )

    async def valkey(self, *words: str, url: str = "") -> Any:
        """A command to the ledger's server, behind everybody's back."""
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(url or self.stack.server.url) as hand:
            return await hand.execute_command(*words)

    async def metric(self, name: str, *roles: str) -> float:
        """A metric's sum over roles that answer."""
        total = 0.0
        for role in roles:
            with contextlib.suppress(OSError):
                total += (await self.stack.metrics(role)).total(name)
        return total

    @contextlib.asynccontextmanager
    async def full_disk(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """The disk of the logs and of the ledger's file has no room; yields a wait until the
        ledger's server has noticed."""
        if not self.own_disk:
            raise NotPossibleHereError("no disk of a size can be mounted here")
        before = await self.valkey("INFO", "errorstats")

        async def misconf() -> bool:
            info = await self.valkey("INFO", "errorstats")
            count = [i.get("errorstat_MISCONF", {"count": 0})["count"] for i in (before, info)]
            return int(count[1]) > int(count[0])

        filler = self.folder / "disk" / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        try:
            yield lambda: until(misconf, timeout_s=30, what="the ledger answers MISCONF")
        finally:
            filler.unlink()

    def _mount(self) -> bool:
        """Put logs and ledger on a disk of their own that can be filled."""
        disk = self.folder / "disk"
        disk.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=False
        )
        if done.returncode:
            return False
        self._open.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
        for name in ("ledger", "logs"):
            (disk / name).mkdir()
            (self.folder / "stack" / name).symlink_to(disk / name)
        return True

    async def freeze_at_work(self) -> tuple[str, int]:
        """SIGSTOP a shard that holds units, which are in its hands from then on: (name, pid)."""
        dispatcher = await self.leader("dispatcher")
        for _ in range(10):
            for shard in self.rng.sample(SHARDS, 2):
                pid = await self.freeze(shard)
                for _ in range(10):
                    family = (await self.stack.metrics(dispatcher)).family(HELD)
                    held = sum(n for labels, n in family.items() if ("shard", shard) in labels)
                    if held:
                        self.saw("units in its hands", int(held))
                        return shard, pid
                    await asyncio.sleep(0.1)
                self.thaw(pid)
        raise TimeoutError("no shard was given a unit while it stood still")

    # --- a row from outside -----------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """A row starts."""
        self.evidence.clear()
        self.stood_still_s = 0.0
        self._fired = len(failpoints.fired(self.control))
        for link in self.links.values():
            link.counts.clear()
            if isinstance(link, HttpLink):
                link.held, link.late = 0, []
                link.methods.clear()
        self.load = Load(self, name=name)

    def proof(self) -> dict[str, int]:
        """What the row's faults did, failpoints and links included."""
        found = Counter(self.evidence)
        for line in failpoints.fired(self.control)[self._fired :]:
            found[f"failpoint {line.partition(' ')[2]}"] += 1
        for link in self.links.values():
            found.update({f"link: {what}": count for what, count in link.counts.items()})
        return dict(found)

    def heal(self) -> None:
        """No fault is in force any more."""
        failpoints.disarm(self.control)
        for link in self.links.values():
            link.heal()
        for clock in self.clocks.values():
            clock.jump(0)
        self._wake_all()
        if self.simulated is not None:
            self.simulated.faults.clear()
            self.simulated.release_watches()

    async def rest(self) -> None:
        """Everything is ready again, and ledger and API agree."""
        await self.load.cancel()
        self.heal()
        names = tuple(self.stack.supervisor.roles)
        await self.stack.supervisor.wait_ready(timeout_s=CALM_S, names=names)
        await self.stack.settle(timeout_s=CALM_S)

    async def history(self, *, ledger: bool) -> Findings:
        """The whole history so far, held against the invariants; new violations only."""
        deadline = time.monotonic() + CHECK_S
        while True:
            await self.stack.recorder.caught_up()
            findings = await asyncio.to_thread(self._check, ledger)
            if not findings.violations or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.5)
        self.known.update(map(str, findings.violations))
        return findings

    def _check(self, ledger: bool) -> Findings:
        history = read_history(self.stack.folder)
        if not ledger:
            history = dataclasses.replace(history, ledger=None, ledger_gap="")
        findings = check(history, at_rest=True)
        findings.violations = [v for v in findings.violations if str(v) not in self.known]
        return findings

    async def sweep(self) -> None:
        """Delete the row's pods, so that the next finds an empty cluster."""
        await self.cluster.clear_pods()
        await self.stack.settle(timeout_s=CALM_S)


__all__ = ["BINDERS", "DISPATCHERS", "SHARDS", "Field", "Ports", "until"]
