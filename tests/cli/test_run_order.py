"""In which order `stretto run` starts its roles."""

from __future__ import annotations

from typing import Any

from stretto.cli.run import Ports, RunSettings, roles_of, start


class Recorded:
    """Notes what a supervisor is asked for."""

    def __init__(self) -> None:
        roles = roles_of(RunSettings(shards=2), redis_url="unix:///x", ports=Ports())
        self.roles = {role.name: role for role in roles}
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def start(self, *names: str) -> None:
        self.asked.append(("start", names))

    async def wait_ready(self, *, timeout_s: float, names: tuple[str, ...]) -> None:
        assert timeout_s > 0
        self.asked.append(("ready", names))


async def test_nobody_dials_a_binder_that_is_not_there_yet() -> None:
    supervisor: Any = Recorded()
    await start(supervisor)
    others = ("dispatcher", "shard-1", "shard-2")
    assert supervisor.asked == [
        ("start", ("binder",)),
        ("ready", ("binder",)),
        ("start", others),
        ("ready", others),
    ]
