"""Binds that an HTTP extender carries out instead of us (``bindVerb``).

The extender sends the binding itself, without our preconditions, and what it answers proves
nothing: a failure is an unknown bind, which is read and fenced like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stretto.kube.answers import BindAnswer, BindKind
from stretto.model.shape import Shape
from stretto.model.unit import Member
from stretto.placement.extenders import Extender

if TYPE_CHECKING:
    from stretto.rpc.extender_client import ExtenderClient, ExtenderFailed


class ExtenderBinds:
    """Asks the extender that binds; made in a running event loop."""

    def __init__(self, extenders: Sequence[Extender]) -> None:
        # Only a Binder that has extenders to ask carries a general HTTP client.
        from stretto.rpc.extender_client import ExtenderClient, ExtenderFailed

        self._failure: type[ExtenderFailed] = ExtenderFailed
        self._binders = tuple(extender for extender in extenders if extender.bind_verb)
        self._client: ExtenderClient = ExtenderClient(self._binders)

    def of(self, shape: Shape) -> Extender | None:
        """Who binds pods of a shape; None: we do."""
        names = [name for name, _ in shape.requests]
        return next((each for each in self._binders if each.interested(names)), None)

    async def bind(self, extender: Extender, *, member: Member, node: str) -> BindAnswer:
        """What the extender says became of it."""
        try:
            await self._client.bind(
                extender, namespace=member.namespace, name=member.name, uid=member.uid, node=node
            )
        except self._failure as error:
            return BindAnswer(BindKind.UNKNOWN, 0, str(error))
        return BindAnswer(BindKind.BOUND, 201)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
