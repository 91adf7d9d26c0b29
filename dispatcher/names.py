"""One deployment a schedulerName: a Lease for each name says which.

Two deployments that serve one name give no capacity out twice, since each sees the other's pods and
the API server takes one bind of a pod only. But both decide on every pod, one of them in vain, and
what one says of a waiting pod the other unsays. So the second is refused.

The holder is a deployment, not a process: namespace and name of its dispatchers' Lease. So a
successor goes on at once where the last leader stopped. Giving the Lease up at an orderly stop, as
leaders do, would let a deployment that is refused slip in while the right one is updated; this
Lease is free when it has stood still for its duration, and not before. It guards no effect.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable

from stretto.config.common import OBJECT_NAME
from stretto.config.dispatcher import DispatcherSettings
from stretto.kube.client import KubeClient
from stretto.kube.leadership import cancelled, unless
from stretto.kube.lease import LeaseSettings
from stretto.kube.lease_keeper import LeaseKeeper
from stretto.model.errors import OperatorError

NAMESPACE = "kube-system"
"""Every cluster has it, whatever namespaces the deployments are in."""


class NameServedError(OperatorError):
    """Another deployment serves the name."""


def lease_of(name: str) -> str:
    """The Lease of a schedulerName; one that cannot be an object's name gives a hash."""
    plain = f"stretto-serves-{name}"
    if OBJECT_NAME.fullmatch(plain):
        return plain
    return f"stretto-serves-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


class ServedNames:
    """The names that this process's deployment serves."""

    def __init__(
        self, client: KubeClient, settings: DispatcherSettings, *, names: Iterable[str]
    ) -> None:
        self._deployment = f"{settings.lease_namespace}/{settings.lease_name}"
        self._patience_s = settings.lease_duration_s + settings.lease_retry_s
        self._client = client
        self._settings = settings
        self._keepers = {name: self._keeper(name) for name in names}

    def _keeper(self, name: str) -> LeaseKeeper:
        settings = self._settings
        lease = LeaseSettings(
            namespace=NAMESPACE,
            name=lease_of(name),
            identity=self._deployment,
            address=settings.advertise or settings.listen,
            duration_s=settings.lease_duration_s,
            renew_deadline_s=settings.lease_renew_deadline_s,
            retry_s=settings.lease_retry_s,
        )
        return LeaseKeeper(self._client, lease)

    async def claimed_unless(self, stop: asyncio.Event) -> bool:
        """Wait until all names are ours; False if ``stop`` came first.

        Raises:
            NameServedError: another deployment has one, and is alive.
        """
        return bool(await unless(stop, self._claim_all()))

    async def keep(self) -> None:
        """Renew until cancelled; a name whose Lease somebody deleted is claimed again.

        Raises:
            NameServedError: a name was taken over after we could not renew for long.
        """
        async with asyncio.TaskGroup() as group:
            for name in self._keepers:
                group.create_task(self._keep(name))

    async def _claim_all(self) -> bool:
        """True once all names are ours."""
        async with asyncio.TaskGroup() as group:
            for name, keeper in self._keepers.items():
                group.create_task(self._claim(name, keeper))
        return True

    async def _claim(self, name: str, keeper: LeaseKeeper) -> None:
        acquiring = asyncio.create_task(keeper.acquire())
        try:
            while not acquiring.done():
                await asyncio.wait([acquiring], timeout=self._patience_s)
                leader = keeper.leader
                other = leader is not None and leader.identity != self._deployment
                # Had it not renewed meanwhile, we would have taken it; an API server that does not
                # answer proves nothing.
                if not acquiring.done() and other and not keeper.problem:
                    raise self._refusal(name, keeper)
            acquiring.result()
        finally:
            await cancelled(acquiring)

    async def _keep(self, name: str) -> None:
        while True:
            keeper = self._keepers[name]
            await keeper.run()
            if keeper.leader is not None:
                raise self._refusal(name, keeper)
            keeper = self._keepers[name] = self._keeper(name)
            await self._claim(name, keeper)

    def _refusal(self, name: str, keeper: LeaseKeeper) -> NameServedError:
        leader = keeper.leader
        assert leader is not None, "served by nobody"
        return NameServedError(
            f"schedulerName {name[:80]} is served by the deployment of Lease {leader.identity}, "
            f"not by that of {self._deployment} (Lease {NAMESPACE}/{lease_of(name)}); stop one of "
            "the two, or give this one another --scheduler-name"
        )
