"""Lists: a lost answer is noticed soon, and a slow server is given its time."""

from __future__ import annotations

import contextlib

from stretto.kube.errors import KubeUnreachable
from stretto.kube.patience import LEARNT_FOR_S, Patience
from tests.kube.api_server import client_of, page, say_nothing, serving

PODS, FREE = "/api/v1/pods?", "/api/v1/pods?fieldSelector=spec.nodeName%3D"


def test_each_time_that_nothing_comes_is_waited_for_twice_as_long_up_to_a_limit() -> None:
    patience, now, waited = Patience(first_s=10.0, longest_s=60.0), 0.0, []
    for _ in range(5):
        waited.append(patience.of(PODS, now=now))
        patience.failed(PODS, began=now, now=now + waited[-1])
        now += waited[-1]
    assert waited == [10, 20, 40, 60, 60]
    assert patience.of(FREE, now=now) == 10, "another list"


def test_a_connection_that_breaks_says_nothing_about_slowness() -> None:
    patience = Patience(first_s=10.0, longest_s=60.0)
    patience.failed(PODS, began=0.0, now=3.0)
    assert patience.of(PODS, now=3.0) == 10


def test_quick_pages_before_a_slow_one_do_not_make_it_fail_again_and_again() -> None:
    patience, now = Patience(first_s=10.0, longest_s=60.0), 0.0
    for _ in range(100):
        for _ in range(20):  # the list begins anew
            patience.answered(PODS, began=now, now=now + 0.1)
            now += 0.1
        waited_s = patience.of(PODS, now=now)
        if waited_s > 35:
            return
        patience.failed(PODS, began=now, now=now + waited_s)
        now += waited_s
    raise AssertionError("a page that takes 35 s is never read")


def test_what_was_slow_is_given_twice_its_time_and_after_a_while_it_is_forgotten() -> None:
    patience = Patience(first_s=10.0, longest_s=60.0)
    patience.answered(PODS, began=0.0, now=9.0)
    assert patience.of(PODS, now=9.0) == 18
    patience.answered(PODS, began=9.0, now=15.0)
    assert patience.of(PODS, now=15.0) == 18, "it was slower before"
    assert patience.of(PODS, now=15.0 + LEARNT_FOR_S) == 10


def test_no_list_is_waited_for_longer_than_the_limit_from_the_start() -> None:
    assert Patience(first_s=10.0, longest_s=2.0).of(PODS, now=0.0) == 2


async def test_a_list_whose_answer_is_swallowed_is_given_up_long_before_its_limit_and_read() -> (
    None
):
    """The first request is never answered; the limit of lists is beyond the time of this test."""
    async with (
        serving(say_nothing, page(7)) as server,
        client_of(server, timeout_s=0.2, list_timeout_s=3600.0) as client,
    ):
        answer = None
        while answer is None:
            with contextlib.suppress(KubeUnreachable):
                answer = await client.list_page("/api/v1/pods", {})
        assert answer.ok
        assert len(server.requests) >= 2
