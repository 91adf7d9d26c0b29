"""Which pods share a shape, and what a shape says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretto.model.objects import Pod, decode_node, decode_pod
from stretto.model.shape import (
    Claim,
    Disk,
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
    decode_shape,
)
from stretto.model.shaping import ShapeError, ShapeMaker, normal_image_name, shape_of
from stretto.snapshot.delta import ImageRow, Taint
from stretto.snapshot.node_rows import NodeError, node_row_of
from tests.model.pods import container, pod_of, sidecar

TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def replica(number: int, **fields: Any) -> Pod:
    """A pod as controllers make them: what is generated differs, nothing else."""
    volume = f"kube-api-access-{number}"
    main = container(
        {"cpu": "1"},
        volumeMounts=[{"name": volume, "mountPath": "/var/run"}],
        env=[{"name": "INDEX", "value": str(number)}],
    )
    meta = {
        "name": f"web-{number}",
        "uid": f"u{number}",
        "labels": {"app": "web", "n": f"{number}"},
    }
    return pod_of(main, volumes=[{"name": volume, **TOKEN}], metadata=meta, **fields)


def test_replicas_share_one_shape_object() -> None:
    maker = ShapeMaker()
    assert maker.shape_of(replica(1)) is maker.shape_of(replica(2))
    assert (maker.hits, maker.misses) == (1, 1)


def test_only_labels_that_a_selector_reads_tell_pods_apart() -> None:
    maker = ShapeMaker()
    assert maker.shape_of(replica(1), label_keys=("app", "x")).labels == (("app", "web"),)
    assert maker.shape_of(replica(1), label_keys=("app",)) is maker.shape_of(
        replica(2), label_keys=("app",)
    )
    apart = [maker.shape_of(replica(n), label_keys=("n",)) for n in (1, 2)]
    assert apart[0].digest != apart[1].digest


def test_a_placed_pod_has_the_shape_it_had_while_pending() -> None:
    maker = ShapeMaker()
    pending = maker.shape_of(replica(1))
    running = replica(1, nodeName="node-7", status={"nominatedNodeName": "node-7"})
    assert maker.shape_of(running, placed=True).digest == pending.digest
    assert maker.shape_of(running).node_name == "node-7"
    assert maker.shape_of(running).nominated_node == "node-7"


DIFFERENCES: list[dict[str, Any]] = [
    {"priority": 5},
    {"schedulerName": "other"},
    {"preemptionPolicy": "Never"},
    {"nodeSelector": {"a": "b"}},
    {"tolerations": [{"key": "a", "operator": "Exists"}]},
    {"overhead": {"cpu": "1"}},
    {"resources": {"requests": {"cpu": "2"}}},
    {"initContainers": [container({"cpu": "9"})]},
    {"metadata": {"namespace": "other"}},
    {"status": {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "7"}}]}},
    {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}]},
    {"resourceClaims": [{"name": "gpu"}]},
    {"hostNetwork": True, "hostUsers": False},
]


@pytest.mark.parametrize("fields", DIFFERENCES)
def test_what_scheduling_reads_makes_another_shape(fields: dict[str, Any]) -> None:
    maker = ShapeMaker()
    plain = maker.shape_of(pod_of(container({"cpu": "1"})))
    other = maker.shape_of(pod_of(container({"cpu": "1"}), **fields))
    assert other.digest != plain.digest
    assert decode_shape(other.encoded) == other


def test_tolerations_are_canonical() -> None:
    first = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    second = {"key": "b", "value": "v"}
    shapes = [
        shape_of(pod_of(container(), tolerations=t))
        for t in ([first, second], [second, first, {**first, "tolerationSeconds": 5}])
    ]
    assert shapes[0].digest == shapes[1].digest
    assert shapes[0].tolerations == (
        Toleration("a", "Exists", "", "NoExecute"),
        Toleration("b", "Equal", "v", ""),
    )


def test_node_affinity() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {
        "nodeAffinity": {
            required: {"nodeSelectorTerms": [term, field]},
            preferred: [{"weight": 3, "preference": term}],
        }
    }
    shape = shape_of(pod_of(container(), affinity=affinity, nodeSelector={"b": "2", "a": "1"}))
    zone = NodeTerm(expressions=(Requirement("zone", "In", ("a", "b")),))
    name = NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert shape.required_node_terms == (zone, name)
    assert [(p.weight, p.term) for p in shape.preferred_node_terms] == [(3, zone)]
    assert shape.node_selector == (("a", "1"), ("b", "2"))
    empty = {"nodeAffinity": {required: {"nodeSelectorTerms": []}}}
    assert shape_of(pod_of(container(), affinity=empty)).required_node_terms == ()
    assert shape_of(pod_of(container())).required_node_terms is None


def test_host_ports_of_containers_and_sidecars() -> None:
    port = {"containerPort": 80, "hostPort": 80}
    shape = shape_of(
        pod_of(
            container(ports=[port, {"containerPort": 1}, {"hostPort": 53, "protocol": "UDP"}]),
            initContainers=[
                sidecar({}, ports=[{"hostPort": 81, "hostIP": "10.0.0.1"}]),
                container(ports=[{"hostPort": 82}]),
            ],
        )
    )
    assert shape.host_ports == (
        HostPort("TCP", "0.0.0.0", 80),
        HostPort("TCP", "10.0.0.1", 81),
        HostPort("UDP", "0.0.0.0", 53),
    )


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("app", "app:latest"),
        ("app:v1", "app:v1"),
        ("host:5000/app", "host:5000/app:latest"),
        ("host:5000/app:v1", "host:5000/app:v1"),
        ("app@sha256:ab", "app@sha256:ab"),
    ],
)
def test_image_names(name: str, normal: str) -> None:
    assert normal_image_name(name) == normal


def test_images_of_all_kinds_count() -> None:
    shape = shape_of(
        pod_of(
            container(image="b"),
            initContainers=[container(image="a")],
            volumes=[{"name": "m", "image": {"reference": "c:1"}}],
        )
    )
    assert shape.images == ("a:latest", "b:latest", "c:1")
    assert shape.image_containers == 3


FREE = [
    "configMap", "secret", "projected", "emptyDir", "downwardAPI", "hostPath", "csi", "nfs",
]  # fmt: skip


@pytest.mark.parametrize("kind", FREE)
def test_volumes_that_constrain_nothing(kind: str) -> None:
    assert shape_of(pod_of(container(), volumes=[{"name": "v", kind: {}}])).unbuilt_hard == ()


def pod_affinity(kind: str, strength: str, term: Any) -> dict[str, Any]:
    return {kind: {f"{strength}DuringSchedulingIgnoredDuringExecution": [term]}}


TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
RESTART = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
HARD = [
    ({"workloadRef": {"name": "g"}}, "GangScheduling: spec.workloadRef (use spec.schedulingGroup)"),
]
FEATURES = [
    ({"hostNetwork": True, "hostUsers": False}, "UserNamespacesHostNetworkSupport"),
    (
        {"initContainers": [container(restartPolicyRules=[RESTART])]},
        "RestartAllContainersOnContainerExits",
    ),
]


@pytest.mark.parametrize(("fields", "name"), FEATURES)
def test_node_features_are_read_off_the_spec(fields: dict[str, Any], name: str) -> None:
    assert shape_of(pod_of(container(), **fields)).node_features == (name,)


def test_claims_by_name_are_anybodys_and_claims_from_templates_the_pods_own() -> None:
    shared = [{"name": "g", "resourceClaimName": "gpu"}]
    first = shape_of(pod_of(container(), resourceClaims=shared))
    assert [(ref.name, ref.owned) for ref in first.device_claims] == [("gpu", False)]
    assert first.owner == ("", "")
    own = [{"name": "g", "resourceClaimTemplateName": "t"}]
    waiting = shape_of(pod_of(container(), resourceClaims=own))
    assert waiting.claim_problem.endswith("ResourceClaim not created yet")


@pytest.mark.parametrize(("fields", "name"), HARD)
def test_hard_constraints_that_are_not_built_are_named(fields: dict[str, Any], name: str) -> None:
    assert shape_of(pod_of(container(), **fields)).unbuilt_hard == (name,)


def test_volumes_that_scheduling_reads_are_claims_and_disks() -> None:
    rbd = {"name": "d", "rbd": {"monitors": ["b", "a"], "image": "i", "readOnly": True}}
    volumes = [
        {"name": "v1", "persistentVolumeClaim": {"claimName": "x"}},
        {"name": "v2", "ephemeral": {}},
        {"name": "v3", "emptyDir": {}},
        {"name": "v4", "awsElasticBlockStore": {"volumeID": "vol-1"}},
        rbd,
    ]
    pod = pod_of(container(), volumes=volumes, metadata={"name": "p", "uid": "u"})
    shape = shape_of(pod)
    assert shape.claims == (Claim("x"), Claim("p-v2", "p", "u"))
    assert shape.disks == (
        Disk("awsElasticBlockStore", ("vol-1",)),
        Disk("rbd", ("rbd", "i"), True, ("a", "b")),
    )
    maker = ShapeMaker()
    assert maker.shape_of(pod) == shape
    other = pod_of(container(), volumes=volumes, metadata={"name": "q", "uid": "w"})
    assert maker.shape_of(other) != shape, "ephemeral volumes belong to one pod"
    free = [{"name": "token-x", "projected": {}}]
    assert shape_of(pod_of(container(), volumes=free)) == shape_of(pod_of(container()))


def test_spread_constraints_are_read_with_their_defaults() -> None:
    raw = [
        {
            "maxSkew": 2,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
            "matchLabelKeys": ["hash", "absent"],
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        },
        {"maxSkew": 1, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"},
    ]
    pod = pod_of(
        container(), metadata={"labels": {"hash": "7", "app": "x"}}, topologySpreadConstraints=raw
    )
    web, hashed = Requirement("app", "In", ("web",)), Requirement("hash", "In", ("7",))
    shape = shape_of(pod)
    assert shape.spread == (
        SpreadConstraint(2, "zone", True, (web, hashed), 3, False, True),
        SpreadConstraint(1, "host", False, None, 1, True, False),
    )
    assert shape.reads == {"app", "hash"}
    other = pod_of(container(), metadata={"labels": {"hash": "8"}}, topologySpreadConstraints=raw)
    maker = ShapeMaker()
    assert maker.shape_of(pod) is not maker.shape_of(other)


def test_the_controller_of_a_pod_with_constraints_of_its_own_does_not_count() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-7", "controller": True, "apiVersion": "apps/v1"}
    owned = pod_of(container(), metadata={"ownerReferences": [owner]})
    assert shape_of(owned).controller == ("ReplicaSet", "web-7")
    for changed in ({"kind": "Job", "apiVersion": "batch/v1"}, {"controller": False}):
        assert shape_of(
            pod_of(container(), metadata={"ownerReferences": [owner | changed]})
        ).controller == (
            "",
            "",
        )
    raw = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    spread = pod_of(
        container(), metadata={"ownerReferences": [owner]}, topologySpreadConstraints=raw
    )
    assert shape_of(spread).controller == ("", "")


def test_a_pod_that_is_being_deleted_is_another_shape_once_it_is_on_a_node() -> None:
    pod = pod_of(container(), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert not shape_of(pod).terminating
    assert shape_of(pod, placed=True).terminating


def test_anti_affinity_terms_are_resolved() -> None:
    web = (Requirement("app", "In", ("web",)),)

    def term(**more: Any) -> PodTerm:
        affinity = pod_affinity("podAntiAffinity", "required", TERM | more)
        (found,) = shape_of(pod_of(container(), affinity=affinity)).anti_affinity
        return found

    assert term() == PodTerm("zone", ("default",), None, web)
    assert term(namespaces=["b", "a"]) == PodTerm("zone", ("a", "b"), None, web)
    assert term(namespaceSelector={}) == PodTerm("zone", (), (), web)
    assert term(labelSelector=None).selector is None


BAD: list[tuple[dict[str, Any], str]] = [
    ({"affinity": "x"}, "spec.affinity"),
    ({"tolerations": {}}, "spec.tolerations"),
    ({"nodeSelector": {"a": 1}}, "spec.nodeSelector"),
    ({"topologySpreadConstraints": [1]}, "spec.topologySpreadConstraints"),
    ({"overhead": {"cpu": "9" * 5000}}, "spec.overhead[cpu]"),
    (
        {
            "affinity": pod_affinity(
                "podAntiAffinity",
                "required",
                {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            )
        },
        "spec.affinity.podAntiAffinity",
    ),
]


@pytest.mark.parametrize(("fields", "where"), BAD)
def test_bad_parts_name_the_field_in_one_line(fields: dict[str, Any], where: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ShapeMaker().shape_of(pod_of(container(), **fields))
    assert str(caught.value).startswith(where)
    assert "\n" not in str(caught.value)


def test_null_parts_are_absent_parts() -> None:
    nulls = dict.fromkeys(
        ["affinity", "tolerations", "nodeSelector", "overhead", "resources", "volumes"]
    )
    assert shape_of(pod_of(container(), **nulls)).digest == shape_of(pod_of(container())).digest


def test_ten_thousand_labels_and_long_names() -> None:
    labels = {f"example.com/key-{i}": "v" * 63 for i in range(10_000)}
    pod = pod_of(container(), metadata={"name": "n" * 253, "labels": labels})
    keys = tuple(sorted(labels))
    assert len(shape_of(pod, label_keys=keys).labels) == 10_000


def test_the_memory_is_bounded_in_entries_and_bytes() -> None:
    maker = ShapeMaker(entries=10, bytes_limit=20_000)
    for n in range(50):
        maker.shape_of(pod_of(container({"cpu": f"{n}m"})))
    assert maker.statistics()["entries"] == 10
    for n in range(50):
        maker.shape_of(pod_of(container(), nodeSelector={"a": "x" * 5000 + str(n)}))
    assert maker.statistics()["entries"] < 5
    assert maker.statistics()["bytes"] <= 20_000


@given(st.permutations(["a", "b", "c"]), st.integers(0, 3), st.booleans())
def test_remembered_equals_made_anew(order: list[str], millis: int, placed: bool) -> None:
    maker = ShapeMaker()
    pod = pod_of(
        container({"cpu": f"{millis}m"}),
        nodeSelector=dict.fromkeys(order, "1"),
        nodeName=order[0],
    )
    maker.shape_of(pod, placed=placed)
    assert maker.shape_of(pod, placed=placed) == shape_of(pod, placed=placed)
    assert maker.hits == 1


def test_a_node_becomes_a_row() -> None:
    node = decode_node(
        b'{"metadata":{"name":"n1","uid":"u1","labels":{"b":"2","a":"1"}},"spec":{"unschedulable":'
        b'true,"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"allocatable":{"pods":"110",'
        b'"cpu":"3920m","memory":"1Gi"},"images":[{"names":["x:1"],"sizeBytes":7}]}}'
    )
    row = node_row_of(node)
    assert row.labels == (("a", "1"), ("b", "2"))
    assert row.taints == (Taint("k", "", "NoSchedule"),)
    assert row.allocatable == (("cpu", 3920), ("memory", 2**30), ("pods", 110))
    assert row.images == (ImageRow(("x:1",), 7),)
    assert row.unschedulable


def test_a_node_with_a_hostile_amount_is_named() -> None:
    node = decode_node(b'{"metadata":{"name":"n1"},"status":{"allocatable":{"cpu":"1e99"}}}')
    with pytest.raises(NodeError, match=r"node n1: status\.allocatable\[cpu\]"):
        node_row_of(node)


def test_a_pod_needs_next_to_nothing() -> None:
    shape = shape_of(decode_pod(b"{}"))
    assert shape.requests == ()
    assert shape.image_containers == 0


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}


def on_node(name: str, *terms: dict[str, Any]) -> dict[str, Any]:
    """Affinity as the DaemonSet controller writes it: every term names the node."""
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {
        "nodeAffinity": {
            REQUIRED: {"nodeSelectorTerms": [{**term, **field} for term in terms or ({},)]}
        }
    }


def daemon(affinity: dict[str, Any]) -> Pod:
    """A pod as the API server writes it: without spaces."""
    return decode_pod(
        json.dumps(
            {
                "metadata": {"name": "d", "namespace": "default", "uid": "u"},
                "spec": {"containers": [container({"cpu": "1"})], "affinity": affinity},
            },
            separators=(",", ":"),
        ).encode()
    )


@pytest.mark.parametrize("terms", [(), (ZONE,), (ZONE, {**ZONE, "extra": 1})])
def test_daemon_pods_share_a_shape_but_for_their_node(terms: tuple[dict[str, Any], ...]) -> None:
    maker = ShapeMaker()
    pods = [daemon(on_node(f"n{number}", *terms)) for number in range(3)]
    shapes = [maker.shape_of(pod) for pod in pods]
    assert (maker.hits, maker.misses) == (2, 1)
    assert [shape.only_node for shape in shapes] == ["n0", "n1", "n2"]
    assert len({shape.digest for shape in shapes}) == 3
    assert len({shape.anywhere.digest for shape in shapes}) == 1
    assert shapes == [shape_of(pod) for pod in pods]
    placed = [maker.shape_of(pod, placed=True) for pod in pods]
    assert placed[0] is placed[1] is placed[2]
    assert placed[0] == shape_of(pods[0], placed=True) == shapes[0].anywhere
    names = [t.fields[0].values for s in shapes for t in s.spelled_out.required_node_terms or ()]
    assert names == [(f"n{n}",) for n in range(3) for _ in terms or (1,)]


def test_terms_that_do_not_all_name_one_node_are_kept_as_they_are() -> None:
    maker = ShapeMaker()
    other = on_node("n2")["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    for extra in ([ZONE], other, [{}]):
        affinity = on_node("n1")
        affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] += extra
        for pod in (daemon(affinity), daemon(on_node("n1")), daemon(affinity)):
            assert maker.shape_of(pod) == shape_of(pod)
        assert shape_of(daemon(affinity)).only_node == ""
        assert len(shape_of(daemon(affinity)).required_node_terms or ()) == 2
    preferred = on_node("n1")
    preferred["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = [
        {"weight": 1, "preference": other[0]}
    ]
    for name in ("n1", "n2"):
        preferred["nodeAffinity"] |= on_node(name)["nodeAffinity"]
        pod = daemon(preferred)
        assert maker.shape_of(pod) == shape_of(pod)
        assert shape_of(pod).preferred_node_terms[0].term.fields[0].values == ("n2",)
