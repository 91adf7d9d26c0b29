"""Figures of the reliability scoreboard: ``python -m tests.reliability late-binds chaos …``."""

from __future__ import annotations

import argparse
import logging

import uvloop

from tests.reliability import (
    chaos,
    degraded,
    gangs,
    hostile,
    late_binds,
    lost_tails,
    others,
    rebuild,
    soak,
    takeover,
)

WHAT = (
    "late-binds",
    "lost-tails",
    "rebuild",
    "takeover",
    "hostile",
    "degraded",
    "gangs",
    "largest-gang",
    "chaos",
    "soak",
)


async def figure(name: str, options: argparse.Namespace) -> int:
    """One of them; what went wrong in it."""
    if name == "late-binds":
        return await late_binds.run(repetitions=options.repetitions, seed=options.seed)
    if name == "lost-tails":
        return await lost_tails.run(repetitions=options.repetitions, seed=options.seed)
    if name == "rebuild":
        return await rebuild.run(nodes=5_000, pods=50_000)
    if name == "takeover":
        return await takeover.run(repetitions=options.takeovers, seed=options.seed)
    if name == "hostile":
        await hostile.run(nodes=5_000)
        return await others.run(nodes=options.nodes, rounds=options.rounds)
    if name == "degraded":
        return await degraded.run(
            rounds=options.rounds,
            seconds=options.seconds,
            seed=options.seed,
            waiting=options.waiting,
        )
    if name == "gangs":
        return await gangs.run()
    if name == "largest-gang":
        return await gangs.largest(seed=options.seed)
    if name == "soak":
        return await soak.run(
            minutes=options.minutes, rate=options.rate, real=options.api == "real"
        )
    return await chaos.run(
        pods=options.pods,
        every_s=options.every_s,
        seed=options.seed,
        real=options.api == "real",
    )


def main() -> int:
    """Run what was asked for; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=WHAT)
    parser.add_argument("--repetitions", type=int, default=1_000)
    parser.add_argument("--takeovers", type=int, default=2, help="of each role and way")
    parser.add_argument("--rounds", type=int, default=5, help="of hostile, degraded: of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="of degraded, counted at once")
    parser.add_argument(
        "--waiting", type=int, default=degraded.WAITING, help="of degraded, pods at any time"
    )
    parser.add_argument("--nodes", type=int, default=1_000, help="of hostile, for others")
    parser.add_argument("--pods", type=int, default=2_000, help="of chaos")
    parser.add_argument(
        "--api", choices=("real", "simulated"), default="real", help="of chaos, soak"
    )
    parser.add_argument("--minutes", type=float, default=480.0, help="of soak")
    parser.add_argument("--rate", type=float, default=10.0, help="pods a second of soak")
    parser.add_argument("--every-s", type=float, default=5.0, help="between kills of chaos")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    wrong = 0
    for name in options.what:
        print(f"== {name}")
        wrong += uvloop.run(figure(name, options))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
