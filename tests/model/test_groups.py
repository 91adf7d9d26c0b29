"""What scheduling reads of pod groups, and what it cannot serve."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stretto.model.groups import (
    DISRUPTION_MODE,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    GroupRow,
    PodGroup,
    decode_group,
    encode_group,
    group_row_of,
)


def row(spec: dict[str, Any], **annotations: str) -> GroupRow:
    metadata = {"name": "g", "namespace": "default", "annotations": annotations}
    return group_row_of(msgspec.convert({"metadata": metadata, "spec": spec}, PodGroup))


def gang(count: int, **fields: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": count}}, **fields}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (gang(1024), ""),
        (gang(1025), "the group's minimum of 1025 members is above 1024"),
        (gang(-1), "the group's minimum of -1 members is negative"),
        ({"minMember": 1025}, "the group's minimum of 1025 members is above 1024"),
        (
            gang(2, parentCompositePodGroupName="c"),
            "the group belongs to a CompositePodGroup, which this release does not support",
        ),
        (
            gang(2, schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            "the group has several topology constraints; this release supports one",
        ),
    ],
)
def test_what_cannot_be_served_is_said_in_a_sentence(spec: dict[str, Any], problem: str) -> None:
    assert row(spec).problem == problem


@pytest.mark.parametrize(
    ("spec", "annotations", "whole"),
    [
        (gang(2, disruptionMode={"all": {}}), {}, True),
        (gang(2, disruptionMode={"single": {}}), {DISRUPTION_MODE: "all"}, False),
        (gang(2), {}, False),
        ({"minMember": 2}, {DISRUPTION_MODE: "all"}, True),
        ({"minMember": 2}, {DISRUPTION_MODE: "single"}, False),
    ],
)
def test_who_goes_as_a_whole(
    spec: dict[str, Any], annotations: dict[str, str], whole: bool
) -> None:
    assert row(spec, **annotations).whole == whole


def test_where_members_go_together() -> None:
    asked = row(gang(2, schedulingConstraints={"topology": [{"key": "rack"}]}))
    assert (asked.topology_key, asked.topology_required) == ("rack", True)
    noted = row(gang(2), **{REQUIRED_TOPOLOGY: "zone"})
    assert (noted.topology_key, noted.topology_required) == ("zone", True)
    wished = row(gang(2), **{PREFERRED_TOPOLOGY: "zone"})
    assert (wished.topology_key, wished.topology_required) == ("zone", False)


def test_a_row_comes_out_of_the_log_as_it_went_in() -> None:
    made = row(gang(3, disruptionMode={"all": {}}, priority=7))
    assert decode_group(encode_group(made)) == made
