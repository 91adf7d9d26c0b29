"""Inline disks: which nodes they leave, how they count, and pods that have very many of them."""

from __future__ import annotations

from unittest import mock

from stretto.model.shape import Disk
from stretto.placement.kernel import Kernel
from stretto.placement.plugins import volume_limits, volume_restrictions
from stretto.placement.profiles import Profiles
from stretto.snapshot.volume_rows import CsiNodeRow
from tests.placement.storage import HOST, cluster, pod, put

GCE = "pd.csi.storage.gke.io"
MANY = 1_000


def kernel_on(snapshot):
    return Kernel(snapshot, Profiles.default())


def disks(*numbers, read_only=True):
    return tuple(Disk("gcePersistentDisk", (f"d{number}",), read_only) for number in numbers)


def on(node, *numbers):
    return pod(disks=disks(*numbers), node_selector=((HOST, node),))


def placed(kernel, shape, count=1):
    return [kernel._snapshot.name[row] for row in kernel.place(shape, count, seed=1).rows]


def test_a_disk_stays_named_until_its_last_pod_has_gone():
    snapshot = cluster(1)
    kernel = kernel_on(snapshot)
    reads, twice = pod(disks=disks(1)), pod(disks=disks(1, 1, 2))
    writes = pod(disks=disks(1, read_only=False))
    for shape in (reads, twice):
        assert placed(kernel, shape) == ["n0"]
        snapshot.validate()
    for shape in (reads, twice):
        assert placed(kernel, writes) == []
        snapshot.remove_pod(shape, 0)
        snapshot.validate()
    assert placed(kernel, writes) == ["n0"]
    assert snapshot.volumes.disks.keys() == {("gcePersistentDisk", ("d1",))}


def test_disks_count_where_the_node_has_a_limit_and_shared_ones_once():
    snapshot = cluster(3)
    kernel = kernel_on(snapshot)
    put(snapshot, CsiNodeRow("n0", ((GCE, 2),)), CsiNodeRow("n1", ((GCE, -1),)))
    assert placed(kernel, pod(disks=disks(1, 2, 3)), 4).count("n0") == 0
    for row in range(3):
        assert placed(kernel, on(f"n{row}", 4, 5), 2) == [f"n{row}"] * 2
        assert kernel.attachments(pod(disks=disks(4, 5)), row) == []
    assert kernel.attachments(pod(disks=disks(5, 6, 7)), 0) == [(GCE, 2)]
    assert "exceed max volume count" in kernel.diagnose(on("n0", 6)).message
    put(snapshot, CsiNodeRow("n0", ((GCE, 3),)))
    assert placed(kernel, on("n0", 6)) == ["n0"]


def test_a_limit_that_comes_later_counts_what_is_there():
    snapshot = cluster(1)
    kernel = kernel_on(snapshot)
    put(snapshot, CsiNodeRow("n0", (("other", 1),)))
    assert placed(kernel, pod(disks=disks(1, 2))) == ["n0"]
    assert kernel.attachments(pod(disks=disks(2, 3)), 0) == []
    put(snapshot, CsiNodeRow("n0", ((GCE, 2),)))
    assert kernel.attachments(pod(disks=disks(2, 3)), 0) == [(GCE, 1)]
    assert placed(kernel, pod(disks=disks(3))) == []
    assert placed(kernel, pod(disks=disks(2))) == ["n0"]


def test_very_many_disks_are_told_apart_by_one_of_them():
    """A node that has one of them for another pod needs no look at the rest."""
    snapshot = cluster(2)
    kernel = kernel_on(snapshot)
    shape = pod(disks=disks(*range(MANY), read_only=False))
    assert placed(kernel, shape) != []
    with mock.patch.object(
        volume_restrictions, "conflict", wraps=volume_restrictions.conflict
    ) as asked:
        assert len(placed(kernel, shape)) == 1
        assert placed(kernel, shape) == []
    assert asked.call_count < 10


def test_what_a_disk_counts_as_is_asked_once_a_shape():
    snapshot = cluster(2)
    kernel = kernel_on(snapshot)
    put(snapshot, CsiNodeRow("n0", ((GCE, 2 * MANY),)), CsiNodeRow("n1", ((GCE, 2 * MANY),)))
    shape = pod(disks=disks(*range(MANY)))
    with mock.patch.object(
        volume_limits, "attachable_disk", wraps=volume_limits.attachable_disk
    ) as asked:
        assert len(placed(kernel, shape, 5)) == 5
    assert asked.call_count <= MANY + 1
