"""Events and pods of very many parts: what would have to be looked at says yes instead."""

from __future__ import annotations

from stretto.placement.hints import interests_of, may_help
from tests.placement.test_hints import added, labelled, left, pod, term


def test_conditions_are_not_put_to_a_shape_that_is_not_to_be_looked_at() -> None:
    interests = interests_of(("NodeAffinity",))
    asks = pod(node_selector=(("disk", "ssd"),))
    assert not may_help(asks, interests, added())
    assert may_help(asks, interests, added(), look=False)
    assert not may_help(asks, interests, left(), look=False)


def test_of_a_pod_with_very_many_terms_any_may_have_kept_others_off() -> None:
    interests = interests_of(("InterPodAffinity",))
    few = tuple(term("db") for _ in range(100))
    assert not may_help(labelled("web"), interests, left(pod(anti_affinity=few)))
    assert may_help(labelled("web"), interests, left(pod(anti_affinity=(*few, term("db")))))
