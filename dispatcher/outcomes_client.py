"""The conversation with the Binder: outcomes in, acknowledgements and withdrawals out."""

from __future__ import annotations

import asyncio
import logging
import random

from dispatcher.binder_side import Requests
from dispatcher.core import Core
from stretto.model.unit import OutcomeKind
from stretto.placement.strict import DEFAULT_DIGEST
from stretto.rpc.channels import Dialer, Stream
from stretto.rpc.errors import RpcError
from stretto.rpc.messages import OutcomeBatch, OutcomeRequest
from stretto.rpc.security import Security
from stretto.rpc.services import OUTCOMES

log = logging.getLogger(__name__)


class OutcomesClient:
    """Keeps an Outcomes stream to the Binder."""

    def __init__(
        self,
        core: Core,
        *,
        target: str,
        security: Security,
        name: str,
        rng: random.Random,
        profiles: str = DEFAULT_DIGEST,
    ) -> None:
        self._core = core
        self._profiles = profiles
        self._name = name
        self.dialer = Dialer(target, security=security, rng=rng)
        self._withdraw: list[str] = []
        self._ask: list[str] = []
        self._label_keys: tuple[str, ...] = ()
        self._some = asyncio.Event()
        self._binder_epoch = 0

    def to_binder(self, requests: Requests) -> None:
        """Tell the Binder with the next message."""
        self._withdraw += requests.withdraw
        self._ask += requests.ask
        self._label_keys = requests.label_keys or self._label_keys
        self._some.set()

    async def run(self) -> None:
        """Converse until cancelled."""
        while True:
            stream, greeting = await self.dialer.connect(OUTCOMES, self._subscription)
            try:
                self.take(greeting)
                await self._converse(stream)
                log.info("the binder at %s has ended the outcomes", stream.peer)
            except RpcError as error:
                log.warning("outcomes of the binder: %s", error)
            finally:
                await stream.close()

    async def _converse(self, stream: Stream[OutcomeRequest, OutcomeBatch]) -> None:
        """Read and write until either ends: the writer does so when the stream has broken."""
        both = [asyncio.create_task(self._read(stream)), asyncio.create_task(self._write(stream))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = [task for task in both if not task.cancel()]
            await asyncio.gather(*both, return_exceptions=True)
        for task in over:
            task.result()

    async def _read(self, stream: Stream[OutcomeRequest, OutcomeBatch]) -> None:
        async for batch in stream:
            self.take(batch)

    async def _write(self, stream: Stream[OutcomeRequest, OutcomeBatch]) -> None:
        """Send what has gathered; withdrawals that could not be sent stay for the next stream."""
        while True:
            await self._some.wait()
            self._some.clear()
            withdraw, ask, keys = self._withdraw, self._ask, self._label_keys
            self._withdraw, self._ask, self._label_keys = [], [], ()
            try:
                await stream.send(self._request(withdraw, ask, keys))
            except RpcError:
                self._withdraw = withdraw + self._withdraw
                self._some.set()
                return

    def take(self, batch: OutcomeBatch) -> None:
        """Apply what the Binder says."""
        machine, now = self._core.machine, self._core.now()
        self._binder_epoch = batch.binder_epoch
        if batch.outcomes:
            machine.binder.apply_outcomes(
                batch.outcomes,
                first_index=batch.first_index,
                epoch=batch.binder_epoch,
                now=now,
            )
        if batch.owned is not None:
            machine.binder.owned_set(
                owned=batch.owned.pod_uid,
                bound=batch.owned.bound_uid,
                unknown=batch.owned.unknown_uid,
                complete=batch.owned.complete,
                now=now,
            )
        bound = all(outcome.kind is OutcomeKind.BOUND for outcome in batch.outcomes)
        self._core.changed(patient=bound and batch.owned is None)

    def _subscription(self) -> OutcomeRequest:
        """The first message acknowledges nothing: the Binder may be another than before."""
        return OutcomeRequest(
            dispatcher_epoch=self._core.machine.epoch,
            dispatcher=self._name,
            profiles=self._profiles,
            label_keys=list(self._core.machine.binder.wanted_keys()),
        )

    def _request(
        self, withdraw: list[str], ask: list[str], label_keys: tuple[str, ...]
    ) -> OutcomeRequest:
        epoch, index = self._core.machine.binder.acknowledged
        return OutcomeRequest(
            dispatcher_epoch=self._core.machine.epoch,
            dispatcher=self._name,
            acknowledged=index if epoch == self._binder_epoch else 0,
            withdraw=withdraw,
            ask=ask,
            label_keys=list(label_keys),
        )
