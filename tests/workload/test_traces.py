"""Trace files: each format, and one clear line for each defect."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from stretto.model.objects import decode_pod
from stretto.model.shape import Requirement
from stretto.model.shaping import shape_of
from stretto.workload.manifests import pod_manifest
from stretto.workload.node_traces import read_nodes
from stretto.workload.nodes import nodes_of
from stretto.workload.openb import compression_of, openb_nodes, openb_pods, pod_records
from stretto.workload.records import GIB, GPU, GPU_MILLI, MODEL_LABEL
from stretto.workload.settings import LoadSettings
from stretto.workload.table import TraceError
from stretto.workload.traces import read_pods

OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
LINE = "a,1,1,1,1000,,LS,Running,1,2,1\n"


def write(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_openb_pods(tmp_path: Path) -> None:
    text = OPENB + "a,6000,12288,1,460,,LS,Running,100,900,110\nb,1,0,0,0,,BE,Pending,50,70,\n"
    first, second = read_pods(write(tmp_path, text))
    assert (first.name, first.created_s, first.ends_s) == ("b", 50, 70)
    assert second.extra == {GPU_MILLI: 460}
    assert second.ends_s == 890, "it runs as long as it did in the trace, from when it is bound"
    assert second.memory == 12 * GIB


def test_pods_that_need_a_gpu_model(tmp_path: Path) -> None:
    text = OPENB + "a,6000,12288,1,460,V100M16|V100M32,LS,Running,100,900,110\n"
    (record,) = read_pods(write(tmp_path, text))
    assert record.models == ("V100M16", "V100M32")
    pod = shape_of(
        decode_pod(
            msgspec.json.encode(
                pod_manifest(record, run="r", namespace="default", scheduler_name="stretto")
            )
        )
    )
    (term,) = pod.required_node_terms or ()
    assert term.expressions == (Requirement(MODEL_LABEL, "In", ("V100M16", "V100M32")),)
    assert dict(pod.requests)[GPU_MILLI] == 460


def test_a_packed_trace_reads_the_same(tmp_path: Path) -> None:
    text = (OPENB + "a,1,1,1,1000,,LS,Running,1,2,1\n").encode()
    assert read_pods(write(tmp_path, gzip.compress(text))) == read_pods(write(tmp_path, text))


def test_philly_jobs_are_gangs_of_one_gpu_pods(tmp_path: Path) -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,3,198.0,11cb\n"
    pods = read_pods(write(tmp_path, text))
    assert len(pods) == 3
    assert len({pod.name for pod in pods}) == 3
    assert all(pod.extra == {GPU: 1} for pod in pods)
    assert pods[0].ends_s == pods[0].created_s + 66


def test_pollux_dlrm_and_our_own(tmp_path: Path) -> None:
    pollux = "name,time,application,num_replicas,batch_size\nbert-0,259,bert,6,384\n"
    assert len(read_pods(write(tmp_path, pollux))) == 6
    dlrm = (
        "instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,"
        "creation_time,deletion_time\ni0,HN,app_0,12,1,25,120.0,,\n"
    )
    (pod,) = read_pods(write(tmp_path, dlrm))
    assert (pod.cpu_milli, pod.extra) == (12000, {GPU: 1, "stretto.io/rdma-percent": 25})
    own = "name,cpu,memory,at_s,lifetime_s,replicas\nweb,250m,1Gi,5,10,2\n"
    pods = read_pods(write(tmp_path, own))
    assert [(p.name, p.cpu_milli, p.created_s, p.ends_s) for p in pods] == [
        ("web-0", 250, 5, 15),
        ("web-1", 250, 5, 15),
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (OPENB + LINE + "b,12x,1,0,0,,LS,Running,1,2,1\n", ":3: column cpu_milli: '12x'"),
        (OPENB + "a,1,1,1,1000,,LS\n", ":2: 7 cells, but the header names 11"),
        (OPENB + "a,,1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli is empty"),
        (OPENB + "a,-1,1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli: '-1'"),
        (OPENB + "a,1e99,1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli: '1e99'"),
        (OPENB + "a,nan,1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli: 'nan'"),
        (OPENB + f"a,{'9' * 5000},1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli: '999"),
        (OPENB + "a,1.5,1,1,1000,,LS,Running,1,2,1\n", ":2: column cpu_milli: 1.5 is not a whole"),
        (OPENB + "a,1,1,1,2000,,LS,Running,1,2,1\n", ":2: column gpu_milli: 2000"),
        (OPENB + "a,1,1,1,1000,,LS,Running,5,2,1\n", ":2: deletion_time 2 is before"),
        (OPENB, ": no pods in it"),
        ("", ":1: no header line"),
        ("x,y\n1,2\n", ":1: the header fits no known format"),
        ("name,cpu,memory\na,1e200000,1\n", ":2: '1e200000'"),
        ("name,cpu,memory,replicas\na,1,1,1000001\n", ":2: column replicas"),
        ("timestamp,duration,num_gpus\nyesterday,1,1\n", ":2: column timestamp: 'yesterday'"),
        ("timestamp,duration,num_gpus\n2017-10-09 07:01:55,1,0\n", ":2: column num_gpus: 0"),
        (b"name,cpu,memory\n\xff,1,1\n", ": not UTF-8"),
        (gzip.compress((OPENB + LINE * 50).encode())[:-12], ": cannot be read"),
        ("name,cpu,memory\n" + "a" * 200_000 + ",1,1\n", ":2: field larger than field limit"),
    ],
)  # fmt: skip
def test_a_defect_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, where: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_pods(path)
    assert str(caught.value).startswith(f"{path}{where}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_pods(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="'xml' is not known; known: csv"):
        read_pods(write(tmp_path, "name,cpu,memory\na,1,1\n"), format_name="xml")
    with pytest.raises(TraceError, match="the header lacks num_gpu"):
        read_pods(write(tmp_path, OPENB.replace("num_gpu", "n")), format_name="openb")


NODES = [
    ("sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\n", {GPU_MILLI: 2000}),
    ("machine,gpu_type,cap_cpu,cap_mem,cap_gpu\nab,T4,96,512,2\n", {GPU: 2}),
    ("gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,4,192,0\n", {GPU: 4}),
    ("machine_id,failure_domain_1,failure_domain_2,cpu_num,mem_size\nm_1,219,17.0,96,100\n", {}),
    ("name,cpu,memory,gpu,zone\na,4,8Gi,1,z1\n", {GPU: 1}),
]


@pytest.mark.parametrize(("text", "extra"), NODES)
def test_node_lists(tmp_path: Path, text: str, extra: dict[str, int]) -> None:
    (node,) = read_nodes(write(tmp_path, text))
    assert node.extra == extra
    assert node.cpu_milli >= 4000
    assert node.memory > GIB


def test_a_defect_in_a_node_list(tmp_path: Path) -> None:
    path = write(tmp_path, "name,cpu,memory\na,4,8Gi\nb,four,8Gi\n")
    with pytest.raises(TraceError, match=r"trace\.csv:3: 'four' is not a quantity"):
        read_nodes(path)


def test_the_openb_trace_comes_with_the_package() -> None:
    nodes = list(openb_nodes())
    assert len(nodes) == 1213
    gpus = sum(int(n["status"]["allocatable"].get(GPU_MILLI, 0)) for n in nodes)
    assert gpus == 6212 * 1000
    pods = list(openb_pods(run="r"))
    assert len(pods) == 8152
    assert len({p.manifest["metadata"]["name"] for p in pods}) == 8152
    assert max(p.at_s for p in pods) == pytest.approx(60.0)
    assert sum(p.lifetime_s is None for p in pods) == 32
    asked = sum(sum(r.extra.values()) for r in pod_records())
    assert asked / 1000 == pytest.approx(6086.8, abs=0.1)


def test_openb_keeps_its_order_under_compression() -> None:
    records = pod_records()
    compress = compression_of(records, span_s=60.0, max_gap_s=1800.0)
    created = [compress(r.created_s) for r in records]
    assert created == sorted(created)
    assert compress.cut_s > 100 * 86400


@pytest.mark.parametrize("nodes", ["-3", "1.5", "nosuch.csv", "99999999"])
def test_nodes_that_are_neither_a_number_nor_a_file(nodes: str) -> None:
    with pytest.raises(TraceError, match=f"--nodes {nodes}: neither a number of nodes"):
        nodes_of(LoadSettings(nodes=nodes))
