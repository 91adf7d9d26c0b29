"""The protocol holds in every order of its steps, and each thing that it does is needed."""

from __future__ import annotations

import pytest

from tests.protocol.model import Variant, explore

BOTH = "both pods are bound to a node with room for one"

BROKEN = {
    "forget after a time-out": Variant(recovery="forget"),
    "forget after a time-out, without the fence": Variant(recovery="forget", fence=False),
    "read, then release": Variant(recovery="get"),
    "read, then release, without the fence": Variant(recovery="get", fence=False),
    "touch, but binds carry no version": Variant(fence=False),
    "reservations expire": Variant(expiry=True),
    "a new version without the ledger's word": Variant(refresh=True),
    "a lost ledger, and nobody is touched": Variant(loses_ledger=True, touch_all=False),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "variant", [Variant(), Variant(loses_ledger=True)], ids=["as built", "with a lost ledger"]
)
def test_the_protocol_is_safe_and_leaves_nothing_behind(variant: Variant) -> None:
    result = explore(variant)
    assert not result.problem, "\n".join(result.steps)
    assert result.states > 5_000, "the model has shrunk to nothing"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("variant", BROKEN.values(), ids=BROKEN)
def test_without_one_of_its_parts_two_pods_share_one_place(variant: Variant) -> None:
    result = explore(variant)
    assert result.problem == BOTH
    assert len(result.steps) >= 8
