"""Whether the roles of `stretto run` lead, or stand by for another deployment's.

A standby is of no use here: it would schedule nothing, and what is started behind it would go over
to the other deployment's leader. So while a role waits for its Lease, the Lease is looked at.
"""

from __future__ import annotations

import asyncio

import msgspec

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeError
from stretto.kube.lease import ADDRESS
from stretto.model.errors import OperatorError

PATIENCE_S = 2.0
"""A role that finds its Lease free has it sooner, and nobody looks."""
LOOK_S = 0.5


class ServedError(OperatorError):
    """Another deployment schedules this cluster."""


class LeaseMetadata(msgspec.Struct, rename="camel"):
    """As much of a Lease's as telling who leads needs."""

    resource_version: str
    annotations: dict[str, str] = {}


class LeaseHead(msgspec.Struct):
    """As much of a Lease as telling who leads needs."""

    metadata: LeaseMetadata


async def until_ours(config: KubeConfig, *, namespace: str, role: str, address: str) -> None:
    """Look at the Lease of a role until it names the address of ours.

    Raises:
        ServedError: it is held, and renewed, at another one.
    """
    await asyncio.sleep(PATIENCE_S)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/stretto-{role}"
    seen = LeaseMetadata("")
    async with KubeClient(config) as client:
        while True:
            found = await _read(client, path)
            leader = found.annotations.get(ADDRESS, "")
            if leader == address:
                return
            # Who is dead does not renew it.
            renewed = found.resource_version != seen.resource_version
            if leader and leader == seen.annotations.get(ADDRESS) and renewed:
                raise ServedError(
                    f"another {role}, at {leader}, holds Lease {namespace}/stretto-{role}: this "
                    "cluster is served already; stop that one first"
                )
            seen = found
            await asyncio.sleep(LOOK_S)


async def _read(client: KubeClient, path: str) -> LeaseMetadata:
    """Nothing where there is none; why it cannot be read is told by whoever waits for it."""
    try:
        reply = await client.get(path)
    except KubeError:
        return LeaseMetadata("")
    if reply.status != 200:
        return LeaseMetadata("")
    return msgspec.json.decode(reply.body, type=LeaseHead).metadata
