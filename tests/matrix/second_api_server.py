"""Another kube-apiserver on the etcd of a control plane, with the same certificate and tokens."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from typing import Self

from stretto.cli.supervisor import free_port
from stretto.ledger.server import die_with_parent
from tests.e2e.stack import until
from tests.kube_env.control_plane import ControlPlane


class SecondApiServer:
    """``async with SecondApiServer(plane, etcd=…) as second``: serves at ``second.address``."""

    def __init__(self, plane: ControlPlane, *, etcd: str) -> None:
        self._plane = plane
        self._etcd = etcd
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        program, *flags = self._plane.command("kube-apiserver")
        ours = {"--etcd-servers": f"http://{self._etcd}", "--secure-port": str(self._port)}
        names = [flag.partition("=")[0] for flag in flags]
        kept = [flag for flag, name in zip(flags, names, strict=True) if name not in ours]
        log = (self._plane.folder / "kube-apiserver-2.log").open("ab")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                program, *kept, *(f"{name}={value}" for name, value in ours.items()),
                stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL,
                preexec_fn=die_with_parent, cwd=self._plane.folder,
            )  # fmt: skip
        try:
            await until(self._ready, timeout_s=60, what="the second kube-apiserver is ready")
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()

    async def _ready(self) -> bool:
        return await asyncio.to_thread(self._answers)

    def _answers(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self._plane.authority))
        request = urllib.request.Request(
            f"https://{self.address}/readyz",
            headers={"Authorization": f"Bearer {self._plane.admin_token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=trust) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False
