"""Whole amounts of devices for accounts: never less than the allocator would give."""

from __future__ import annotations

from stretto.model.devices import CapacityRow, DeviceRow, NodeChoice, Result, SliceRow
from stretto.placement.devices.amounts import (
    capacity_of,
    consumed_of,
    counters_of,
    drawn_by,
    drawn_of,
    share_of,
)
from stretto.placement.devices.inventory import Device, DeviceId, Slice
from stretto.placement.devices.usage import DeviceUsage

ID = DeviceId("d", "p", "x")


def device(row: DeviceRow) -> Device:
    return Device(ID, row, (), 0, per_device=False, slice_where=NodeChoice())


def test_what_there_is_is_rounded_up_and_what_is_taken_down() -> None:
    shared = device(DeviceRow("x", capacity=(CapacityRow("slots", "2500m"),), allow_multiple=True))
    share = Result("r", *ID, share_id="s", consumed=(("slots", "1900m"),))
    usage = DeviceUsage()
    assert (capacity_of(shared), share_of(share)) == ({"slots": 3}, {"slots": 1})
    assert consumed_of(ID, usage) == {}


def test_counters_are_those_of_the_newest_generation_by_set() -> None:
    def counters(name: str, generation: int, amount: str) -> Slice:
        sets = ((name, (("memory", amount),)),)
        return Slice(SliceRow(name, "d", "p", generation, 2, counters=sets), ())

    slices = (counters("a", 1, "1Gi"), counters("a", 2, "2Gi"), counters("b", 2, "1500m"))
    assert counters_of(slices) == {"a": {"memory": 2 << 30}, "b": {"memory": 2}}


def test_what_devices_in_use_draw_is_added_up() -> None:
    part = device(DeviceRow("x", consumes=(("a", (("memory", "1Gi"), ("cores", "1"))),)))
    other = device(DeviceRow("x"))
    usage = DeviceUsage()
    usage.whole[ID] = 1
    assert drawn_by(part) == {"a": {"memory": 1 << 30, "cores": 1}}
    assert drawn_of((part, part, other), usage) == {"a": {"memory": 2 << 30, "cores": 2}}
    assert drawn_of((part,), DeviceUsage()) == {}
