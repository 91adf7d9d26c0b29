"""Bodies that an API server refuses, with its codes and words: 400 (types), 403 (admission), 422.

The words are those that a real kube-apiserver answers; the simulator may leave out explanations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.contract.cluster import Cluster, decoded, pod_body, version_of

HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
CONTAINER = {"name": "c", "image": "pause"}
NODE_TERM = f"spec.affinity.nodeAffinity.{HARD}.nodeSelectorTerms[0]"
TYPES = 'Pod in version "v1" cannot be handled as a Pod: '
LABEL = "a valid label must be an empty string or consist of alphanumeric characters"
KEY = "name part must consist of alphanumeric characters"


class Case(NamedTuple):
    """A body, and what is answered to it."""

    name: str
    spec: dict[str, Any]
    status: int
    words: str = ""


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{**CONTAINER, **fields}]}


def requests(**amounts: Any) -> dict[str, Any]:
    return container(resources={"requests": amounts})


def resources(requests: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    return container(resources={"requests": requests, "limits": limits})


def port(**fields: Any) -> dict[str, Any]:
    return container(ports=[fields])


def line(*words: str, **fields: Any) -> dict[str, Any]:
    """Node affinity of one line: key, operator, values."""
    key, operator, *values = words
    one = {"key": key, "operator": operator, **({"values": values} if values else {})}
    terms = [{fields.get("kind", "matchExpressions"): [one]}]
    return {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": terms}}}}


def preferred_node(weight: int) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    return {"affinity": {"nodeAffinity": {SOFT: [{"weight": weight, "preference": term}]}}}


def pods_near(kind: str = "podAffinity", **term: Any) -> dict[str, Any]:
    whole = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}, **term}
    return {"affinity": {kind: {HARD: [whole]}}}


def selector(**line: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchExpressions": [{"key": "a", **line}]}}


def toleration(**fields: Any) -> dict[str, Any]:
    return {"tolerations": [fields]}


def spread(**fields: Any) -> dict[str, Any]:
    good = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**good, **fields}]}


RESOURCES = "spec.containers[0].resources"
FAMILIES: dict[str, list[Case]] = {
    "quantities": [
        Case("negative", requests(cpu="-1"), 422, f"{RESOURCES}.requests[cpu]: Invalid value: "
             '"-1": must be greater than or equal to 0'),
        Case("a word", requests(cpu="abc"), 400, f"{TYPES}quantities must match"),
        Case("empty", requests(cpu=""), 400, f"{TYPES}quantities must match"),
        Case("true", requests(cpu=True), 400, TYPES),
        Case("a list", requests(cpu=[1]), 400, TYPES),
        Case("null is zero", requests(cpu=None), 201),
        Case("a number", requests(cpu=1), 201),
        Case("finer than a thousandth", requests(cpu="1.0001m"), 201),
        Case("huge", requests(cpu="1e200000"), 201),
        Case("parts of bytes", requests(memory="100m"), 201),
        Case("no list", container(resources={"requests": ["a"]}), 400, TYPES),
        Case("init container", {"initContainers": [
            {**CONTAINER, "name": "i", "resources": {"requests": {"cpu": "-1"}}}]}, 422,
            "spec.initContainers[0].resources.requests[cpu]: Invalid value"),
        Case("whole pod", {"resources": {"requests": {"cpu": "-1"}}}, 422,
             "spec.resources.requests[cpu]: Invalid value"),
    ],
    "resources": [
        Case("extended without limit", requests(**{"example.com/gpu": "1"}), 422,
             f"{RESOURCES}.limits: Required value: Limit must be set for non overcommitable"),
        Case("extended, limit alone", resources({}, {"example.com/gpu": "1"}), 201),
        Case("extended, other limit",
             resources({"example.com/gpu": "1"}, {"example.com/gpu": "2"}), 422,
             'Invalid value: "1": must be equal to example.com/gpu limit of 2'),
        Case("part of a piece", resources({"example.com/gpu": "1.5"}, {"example.com/gpu": "1.5"}),
             422, 'requests[example.com/gpu]: Invalid value: "1500m": must be an integer'),
        Case("unknown", requests(gpu="1"), 422, "must be a standard resource type or fully"),
        Case("of nodes", requests(pods="1"), 422, "must be a standard resource for containers"),
        Case("above the limit", resources({"cpu": "2"}, {"cpu": "1"}), 422,
             'Invalid value: "2": must be less than or equal to cpu limit of 1'),
        Case("huge pages alone", resources({}, {"hugepages-2Mi": "2Mi"}), 422,
             f"{RESOURCES}: Forbidden: HugePages require cpu or memory"),
        Case("bad name", requests(**{"Foo/bar/baz": "1"}), 422, "Invalid value"),
        Case("overhead", {"overhead": {"cpu": "1"}}, 403, "pod rejected: Pod Overhead set without"),
    ],
    "ports": [
        Case("negative", port(containerPort=80, hostPort=-1), 422,
             "ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive"),
        Case("too large", port(containerPort=80, hostPort=70_000), 422, "Invalid value: 70000"),
        Case("missing", port(hostPort=80), 422, "ports[0].containerPort: Required value"),
        Case("zero", port(containerPort=0), 422, "ports[0].containerPort: Required value"),
        Case("text", port(containerPort="80"), 400, TYPES),
        Case("half", port(containerPort=80.5), 400, TYPES),
        Case("protocol", port(containerPort=80, protocol="FOO"), 422,
             'protocol: Unsupported value: "FOO": supported values: "SCTP", "TCP", "UDP"'),
        Case("twice", container(ports=[{"containerPort": 80, "hostPort": 80},
                                       {"containerPort": 81, "hostPort": 80}]), 422,
             'ports[1].hostPort: Duplicate value: "TCP//80"'),
        Case("other than the host's", {"hostNetwork": True,
             **port(containerPort=80, hostPort=81)}, 422,
             "must match `containerPort` when `hostNetwork` is true"),
        Case("good", port(containerPort=80, hostPort=8080, protocol="UDP"), 201),
    ],
    "node affinity": [
        Case("unknown operator", line("a", "Foo", "b"), 422,
             f'{NODE_TERM}.matchExpressions[0].operator: Invalid value: "Foo": not a valid'),
        Case("no operator", line("a", "", "b"), 422, 'operator: Invalid value: "": not a valid'),
        Case("In without values", line("a", "In"), 422, "values: Required value: must be"),
        Case("Exists with values", line("a", "Exists", "b"), 422, "values: Forbidden: may not be"),
        Case("Gt with two", line("a", "Gt", "1", "2"), 422, "must be specified single value when"),
        Case("Gt of a word", line("a", "Gt", "x"), 201),
        Case("key", line("a b", "Exists"), 422, f'key: Invalid value: "a b": {KEY}'),
        Case("value", line("a", "In", "b c"), 422, f'values[0]: Invalid value: "b c": {LABEL}'),
        Case("two names", line("metadata.name", "In", "a", "b", kind="matchFields"), 422,
             "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"),
        Case("field operator", line("metadata.name", "Exists", kind="matchFields"), 422,
             f'{NODE_TERM}.matchFields[0].operator: Invalid value: "Exists": not a valid'),
        Case("field", line("spec.x", "In", "a", kind="matchFields"), 422,
             'key: Invalid value: "spec.x": not a valid field selector key'),
        Case("no terms", {"affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": []}}}}, 422,
             "nodeSelectorTerms: Required value: must have at least one node selector term"),
        Case("weight 0", preferred_node(0), 422, "weight: Invalid value: 0: must be in the range"),
        Case("weight 101", preferred_node(101), 422, "Invalid value: 101: must be in the range"),
        Case("node selector, a list", {"nodeSelector": ["a"]}, 400, TYPES),
        Case("node selector, a number", {"nodeSelector": {"a": 1}}, 400, TYPES),
        Case("node selector, value", {"nodeSelector": {"a": "b c"}}, 422,
             f'spec.nodeSelector: Invalid value: "b c": {LABEL}'),
    ],
    "pods and spread": [
        Case("no topology", pods_near(topologyKey=""), 422, "topologyKey: Required value: can not"),
        Case("operator", pods_near(**selector(operator="Foo")), 422,
             'labelSelector.matchExpressions[0].operator: Invalid value: "Foo": not a valid'),
        Case("Gt is for nodes", pods_near(**selector(operator="Gt", values=["1"])), 422,
             'operator: Invalid value: "Gt": not a valid selector operator'),
        Case("anti", pods_near("podAntiAffinity", **selector(operator="NotIn")), 422,
             f"podAntiAffinity.{HARD}[0].labelSelector.matchExpressions[0].values: Required value"),
        Case("skew 0", spread(maxSkew=0), 422, "maxSkew: Invalid value: 0: must be greater than"),
        Case("when", spread(whenUnsatisfiable="Foo"), 422,
             'Unsupported value: "Foo": supported values: "DoNotSchedule", "ScheduleAnyway"'),
        Case("spread topology", spread(topologyKey=""), 422, "topologyKey: Required value"),
        Case("domains 0", spread(minDomains=0), 422, "minDomains: Invalid value: 0"),
        Case("soft domains", spread(minDomains=1, whenUnsatisfiable="ScheduleAnyway"), 422,
             "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"),
        Case("policy", spread(nodeTaintsPolicy="Foo"), 422,
             'Unsupported value: "Foo": supported values: "Honor", "Ignore"'),
        Case("spread operator", spread(**selector(operator="Foo")), 422, "not a valid selector"),
        Case("good", spread(), 201),
    ],
    "tolerations": [
        Case("operator", toleration(key="a", operator="Foo"), 422,
             'operator: Unsupported value: "Foo": supported values: "Equal", "Exists"'),
        Case("effect", toleration(key="a", operator="Exists", effect="Foo"), 422,
             'effect: Unsupported value: "Foo": supported values: "NoSchedule"'),
        Case("Exists with value", toleration(key="a", operator="Exists", value="b"), 422,
             "value must be empty when `operator` is 'Exists'"),
        Case("no key", toleration(operator="Equal", value="b"), 422,
             "operator must be Exists when `key` is empty"),
        Case("seconds", toleration(key="a", operator="Exists", effect="NoSchedule",
                                   tolerationSeconds=3), 422, "effect must be 'NoExecute' when"),
        Case("key", toleration(key="a b", operator="Exists"), 422, KEY),
        Case("value", toleration(key="a", value="b c"), 422, LABEL),
        Case("no list", {"tolerations": {"a": 1}}, 400, TYPES),
    ],
    "spec": [
        Case("priority, a word", {"priority": "high"}, 400, TYPES),
        Case("priority, too large", {"priority": 2**40}, 400, TYPES),
        Case("priority without class", {"priority": 5}, 403, "the integer value of priority (5)"),
        Case("priority as computed", {"priority": 0}, 201),
        Case("preemption", {"preemptionPolicy": "Foo"}, 403, "string value of PreemptionPolicy ("),
        Case("class, a number", {"priorityClassName": 3}, 400, TYPES),
        Case("class", {"priorityClassName": "no"}, 403, "no PriorityClass with name no was found"),
        Case("scheduler name", {"schedulerName": 3}, 400, TYPES),
        Case("node name", {"nodeName": "A_B"}, 422, 'spec.nodeName: Invalid value: "A_B": a lower'),
        Case("restart policy", {"restartPolicy": "always"}, 422,
             'Unsupported value: "always": supported values: "Always", "OnFailure", "Never"'),
        Case("grace period", {"terminationGracePeriodSeconds": "3"}, 400, TYPES),
        Case("deadline", {"activeDeadlineSeconds": 0}, 422, "spec.activeDeadlineSeconds: Invalid"),
        Case("gate twice", {"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 422,
             'spec.schedulingGates[1]: Duplicate value: "a"'),
        Case("gate", {"schedulingGates": [{"name": "a b"}]}, 422, KEY),
        Case("gated on a node", {"nodeName": "n1", "schedulingGates": [{"name": "a"}]}, 422,
             "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"),
        Case("host network", {"hostNetwork": "yes"}, 400, TYPES),
        Case("two volumes in one", {"volumes": [{"name": "v", "emptyDir": {},
                                                 "hostPath": {"path": "/a"}}]}, 422,
             "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"),
        Case("os", {"os": {"name": "foo"}}, 422, 'spec.os: Unsupported value: "foo"'),
        Case("no containers", {"containers": []}, 422, "spec.containers: Required value"),
        Case("containers, a word", {"containers": "foo"}, 400, TYPES),
        Case("container, a word", {"containers": ["c"]}, 400, TYPES),
        Case("image", {"containers": [{"name": "c"}]}, 422, "containers[0].image: Required value"),
        Case("container name", {"containers": [{"name": "A_B", "image": "i"}]}, 422,
             'spec.containers[0].name: Invalid value: "A_B": a lowercase RFC 1123 label must'),
        Case("container twice", {"containers": [CONTAINER, CONTAINER]}, 422,
             'spec.containers[1].name: Duplicate value: "c"'),
        Case("pull policy", container(imagePullPolicy="Foo"), 422, "imagePullPolicy: Unsupported"),
        Case("unknown field", {"foo": 1}, 201),
    ],
}  # fmt: skip


async def check(cluster: Cluster, path: str, body: Any, case: Case) -> None:
    answer = await cluster.client.post(path, body)
    assert answer.status == case.status, (case.name, answer.status, answer.text)
    assert case.words in answer.text, (case.name, answer.text)
    if answer.ok:
        name = decoded(answer)["metadata"]["name"]
        await cluster.client.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("family", FAMILIES)
async def test_pods_are_taken_or_refused_alike(cluster: Cluster, family: str) -> None:
    for case in FAMILIES[family]:
        await check(cluster, cluster.pods, pod_body("x", **case.spec), case)


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"labels": {"a": "b c"}}, 422, f'metadata.labels: Invalid value: "b c": {LABEL}'),
        ({"labels": {"a b": "c"}}, 422, f'metadata.labels: Invalid value: "a b": {KEY}'),
        ({"labels": {"a": 1}}, 400, TYPES),
        ({"labels": ["a"]}, 400, TYPES),
        ({"annotations": {"a": 1}}, 400, TYPES),
        ({"name": 3}, 400, TYPES),
        ({"name": "A_B"}, 422, "metadata.name: Invalid value: "),
        ({"name": "x" * 254}, 422, "metadata.name: Invalid value: "),
        ({"name": "x" * 253}, 201, ""),
        ({"name": "x"}, 201, ""),
        (
            {"resourceVersion": "5"},
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        ({"namespace": "other"}, 400, "the namespace of the provided object does not match"),
    ],
)
async def test_metadata_is_taken_or_refused_alike(
    cluster: Cluster, fields: dict[str, Any], status: int, words: str
) -> None:
    body = {**pod_body("x"), "metadata": {"name": "x", **fields}}
    await check(cluster, cluster.pods, body, Case(str(fields)[:40], {}, status, words))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "couldn't get version/kind; json parse error: "),
        (b"", 400, "couldn't get version/kind; json parse error: "),
        (b"[]", 400, "couldn't get version/kind; json parse error: "),
        (b"null", 422, "metadata.name: Required value: name or generateName is required"),
        (b'{"spec":"foo","metadata":{"name":"x"}}', 400, TYPES),
        (b'{"metadata":{"name":"x"}}', 422, "spec.containers: Required value"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "couldn't get version/kind; json parse"),
        (
            b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"x"}}',
            400,
            'Node in version "v1" cannot be handled as a Pod: ',
        ),
    ],
)
async def test_bodies_that_are_no_pods(
    cluster: Cluster, body: bytes, status: int, words: str
) -> None:
    await check(cluster, cluster.pods, body, Case(str(body)[:40], {}, status, words))


@pytest.mark.parametrize(
    ("spec", "status_part", "status", "words"),
    [
        ({}, {"allocatable": {"cpu": "4"}}, 201, ""),
        ({}, {"allocatable": {"cpu": "abc"}}, 400, "quantities must match"),
        ({}, {"allocatable": {"cpu": "-1"}}, 422, 'status.allocatable.cpu: Invalid value: "-1"'),
        ({}, {"capacity": {"pods": "1.5"}}, 422, '"1500m": must be an integer'),
        ({}, {"allocatable": ["a"]}, 400, 'Node in version "v1" cannot be handled as a Node: '),
        ({"unschedulable": "yes"}, {}, 400, "cannot be handled as a Node: "),
        ({"taints": [{"key": "a"}]}, {}, 422, "taints[0].effect: Required value"),
        ({"taints": [{"key": "a", "effect": "Foo"}]}, {}, 422, 'Unsupported value: "Foo"'),
        ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, {}, 422, KEY),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}, {}, 422, "Duplicate value"),
    ],
)
async def test_nodes_are_taken_or_refused_alike(
    cluster: Cluster, spec: dict[str, Any], status_part: dict[str, Any], status: int, words: str
) -> None:
    body = {"metadata": {"name": cluster.namespace}, "spec": spec, "status": status_part}
    await check(cluster, "/api/v1/nodes", body, Case(str(body)[:40], {}, status, words))


async def test_changes_are_checked_as_creations_are(cluster: Cluster) -> None:
    path = f"/api/v1/nodes/{cluster.namespace}"
    node = {"metadata": {"name": cluster.namespace}, "status": {"allocatable": {"cpu": "4"}}}
    assert (await cluster.client.post("/api/v1/nodes", node)).status == 201
    merge = "application/merge-patch+json"
    for part, body, status in (
        ("/status", {"status": {"allocatable": {"cpu": "-1"}}}, 422),
        ("/status", {"status": {"allocatable": {"cpu": "abc"}}}, 422),
        ("", {"spec": {"taints": [{"key": "a", "effect": "Foo"}]}}, 422),
        ("", {"metadata": {"labels": {"a": "b c"}}}, 422),
        ("", {"metadata": {"labels": {"a": "b"}}}, 200),
    ):
        answer = await cluster.client.patch(path + part, body, content_type=merge)
        assert answer.status == status, (body, answer.text)
    await cluster.client.delete(path)
    pod = await cluster.create_pod("p1")
    pod["spec"]["tolerations"].append({"key": "a", "operator": "Foo"})
    refused = await cluster.client.put(f"{cluster.pods}/p1", pod)
    assert refused.status == 422
    assert 'Unsupported value: "Foo"' in refused.text
    assert version_of(await cluster.get_pod("p1")) == version_of(pod)
