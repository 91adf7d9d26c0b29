"""Two deployments that name one schedulerName: the second is refused while the first lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dispatcher.names import NAMESPACE, ServedNames, lease_of
from stretto.config.dispatcher import DispatcherSettings
from stretto.kube.leadership import cancelled
from stretto.model.errors import OperatorError
from tests.contract.cluster import Cluster, decoded

pytestmark = pytest.mark.timeout(60)

LIVES_S = 6.0
"""Of a claim: the other deployment renews it every tenth of a second, on a machine that is busy."""
GONE_S = 0.5
"""Of a claim by one that is in a hurry, after a deployment that renews no more."""


def names_of(
    cluster: Cluster, deployment: str, *names: str, lives_s: float = LIVES_S
) -> ServedNames:
    settings = DispatcherSettings(
        lease_namespace=deployment,
        lease_duration_s=lives_s,
        lease_renew_deadline_s=lives_s / 2,
        lease_retry_s=0.1,
    )
    return ServedNames(cluster.client, settings, names=names or (cluster.namespace,))


async def claim(served: ServedNames) -> None:
    async with asyncio.timeout(30):
        assert await served.claimed_unless(asyncio.Event())


@asynccontextmanager
async def keeping(served: ServedNames) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(served.keep())
    try:
        yield task
    finally:
        await cancelled(task)


def path_of(name: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease_of(name)}"


async def holder_of(cluster: Cluster, name: str) -> str:
    return str(decoded(await cluster.client.get(path_of(name)))["spec"]["holderIdentity"])


def told(group: BaseExceptionGroup[BaseException]) -> str:
    (error,) = group.exceptions
    assert isinstance(error, OperatorError)
    assert error.exit_code == 2
    return str(error)


async def test_a_second_deployment_is_refused_and_told_of_the_first(cluster: Cluster) -> None:
    first = names_of(cluster, "one")
    await claim(first)
    async with keeping(first) as kept:
        with pytest.raises(BaseExceptionGroup) as caught:
            await claim(names_of(cluster, "two"))
        assert not kept.done()
    assert await holder_of(cluster, cluster.namespace) == "one/stretto-dispatcher"
    said = told(caught.value)
    assert said.startswith(f"schedulerName {cluster.namespace} is served by the deployment of ")
    assert "Lease one/stretto-dispatcher, not by that of two/stretto-dispatcher" in said
    assert "\n" not in said


async def test_one_name_of_several_is_enough_to_be_refused(cluster: Cluster) -> None:
    mine, shared = f"{cluster.namespace}.mine", f"{cluster.namespace}.shared"
    first = names_of(cluster, "one", shared)
    await claim(first)
    async with keeping(first):
        with pytest.raises(BaseExceptionGroup) as caught:
            await claim(names_of(cluster, "two", mine, shared))
    assert shared in told(caught.value)


async def test_a_successor_in_the_same_deployment_goes_on_at_once(cluster: Cluster) -> None:
    """And a leader of it that is still there is not disturbed."""
    first, second = names_of(cluster, "one", lives_s=3600), names_of(cluster, "one", lives_s=3600)
    await claim(first)
    async with keeping(first) as kept:
        await claim(second)
        async with keeping(second) as kept_too:
            await asyncio.sleep(1)
            assert not kept.done()
            assert not kept_too.done()


async def test_a_deployment_that_has_gone_is_succeeded_and_finds_out(cluster: Cluster) -> None:
    first = names_of(cluster, "one")
    await claim(first)
    await claim(names_of(cluster, "two", lives_s=GONE_S))
    with pytest.raises(BaseExceptionGroup) as caught:
        async with asyncio.timeout(30):
            await first.keep()
    assert "is served by the deployment of Lease two/stretto-dispatcher" in told(caught.value)


async def test_a_lease_that_somebody_deletes_is_made_again_and_ends_nobody(
    cluster: Cluster,
) -> None:
    first = names_of(cluster, "one")
    await claim(first)
    async with keeping(first) as kept:
        for _ in range(2):
            assert (await cluster.client.delete(path_of(cluster.namespace))).ok
            async with asyncio.timeout(30):
                while not (await cluster.client.get(path_of(cluster.namespace))).ok:
                    assert not kept.done()
                    await asyncio.sleep(0.05)
        assert not kept.done()
    assert await holder_of(cluster, cluster.namespace) == "one/stretto-dispatcher"


async def test_names_that_no_object_can_have_are_told_apart(cluster: Cluster) -> None:
    odd = [f"{cluster.namespace} {word}" for word in ("A", "a", "ü" * 300)]
    assert len({lease_of(name) for name in odd}) == 3
    await claim(names_of(cluster, "one", *odd))
    for name in odd:
        assert await holder_of(cluster, name) == "one/stretto-dispatcher"


async def test_stop_comes_before_the_claim(cluster: Cluster) -> None:
    first = names_of(cluster, "one")
    await claim(first)
    async with keeping(first):
        stop = asyncio.Event()
        stop.set()
        assert not await names_of(cluster, "two").claimed_unless(stop)
