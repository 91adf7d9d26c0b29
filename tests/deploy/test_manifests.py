"""The manifests on a real kube-apiserver: accepted, restricted, and with exactly the rights
named."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from binder.kinds import DEVICE_RESOURCES
from dispatcher.names import lease_of
from stretto.config.scheduler_file import configuration_of
from tests.kube_env.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(120)
DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "stretto"
Right = tuple[str, str, str, str]
"""(verb, "group/resource", name or '', namespace or '' for everywhere)"""

STORAGE = (
    "storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments",
)  # fmt: skip
EVENTS = "events.k8s.io/events"
LEASES = "coordination.k8s.io/leases"
QUEUES = "scheduling.stretto.io/queues"
JOBS = "batch/jobs"
CLASSES = "scheduling.k8s.io/priorityclasses"
SERVES = lease_of("stretto")
SELECTING = ("/services", "/replicationcontrollers", "apps/replicasets", "apps/statefulsets")
GROUPS = ("scheduling.k8s.io/podgroups", "scheduling.x-k8s.io/podgroups")
REVIEWS: tuple[Right, ...] = (
    ("create", "authentication.k8s.io/tokenreviews", "", ""),
    ("create", "authorization.k8s.io/subjectaccessreviews", "", ""),
)
EXPECTED: dict[str, set[Right]] = {
    "stretto-dispatcher": {
        ("list", "/pods", "", ""),
        ("watch", "/pods", "", ""),
        ("patch", "/pods/status", "", ""),
        ("patch", "scheduling.k8s.io/podgroups/status", "", ""),
        ("patch", f"{QUEUES}/status", "", ""),
        ("list", JOBS, "", ""),
        ("watch", JOBS, "", ""),
        ("patch", JOBS, "", ""),
        ("patch", f"{JOBS}/status", "", ""),
        ("list", CLASSES, "", ""),
        ("watch", CLASSES, "", ""),
        ("create", EVENTS, "", ""),
        *REVIEWS,
        ("get", LEASES, "stretto-dispatcher", NAMESPACE),
        ("update", LEASES, "stretto-dispatcher", NAMESPACE),
        ("get", LEASES, SERVES, "kube-system"),
        ("update", LEASES, SERVES, "kube-system"),
    },
    "stretto-binder": {
        ("get", "/pods", "", ""),
        ("list", "/pods", "", ""),
        ("watch", "/pods", "", ""),
        ("list", "/nodes", "", ""),
        ("watch", "/nodes", "", ""),
        ("list", "/namespaces", "", ""),
        ("watch", "/namespaces", "", ""),
        ("get", "/namespaces", "kube-system", ""),
        ("list", QUEUES, "", ""),
        ("watch", QUEUES, "", ""),
        *(
            (verb, f"resource.k8s.io/{name}", "", "")
            for name in DEVICE_RESOURCES.values()
            for verb in ("list", "watch")
        ),
        *((verb, resource, "", "") for verb in ("list", "watch") for resource in SELECTING),
        *(
            (verb, "resource.k8s.io/resourceclaims", "", "")
            for verb in ("create", "patch", "delete")
        ),
        ("patch", "resource.k8s.io/resourceclaims/status", "", ""),
        ("patch", "resource.k8s.io/resourceclaims/binding", "", ""),
        ("create", "/pods/binding", "", ""),
        ("get", "/persistentvolumes", "", ""),
        ("list", "/persistentvolumes", "", ""),
        ("watch", "/persistentvolumes", "", ""),
        ("patch", "/persistentvolumes", "", ""),
        ("get", "/persistentvolumeclaims", "", ""),
        ("list", "/persistentvolumeclaims", "", ""),
        ("watch", "/persistentvolumeclaims", "", ""),
        ("patch", "/persistentvolumeclaims", "", ""),
        *(
            (verb, f"storage.k8s.io/{resource}", "", "")
            for resource in STORAGE
            for verb in ("list", "watch")
        ),
        *((verb, resource, "", "") for verb in ("list", "watch") for resource in GROUPS),
        ("patch", "/pods/status", "", ""),
        ("create", "/pods/eviction", "", ""),
        ("delete", "/pods", "", ""),
        ("list", "policy/poddisruptionbudgets", "", ""),
        ("watch", "policy/poddisruptionbudgets", "", ""),
        ("create", EVENTS, "", ""),
        *REVIEWS,
        ("get", LEASES, "stretto-binder", NAMESPACE),
        ("update", LEASES, "stretto-binder", NAMESPACE),
    },
    "stretto-shard": set(),
    "stretto-valkey": set(),
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = (
    "/pods", "/pods/status", "/pods/binding", "/pods/eviction", "/pods/exec", "/bindings",
    "/nodes", "/nodes/status", "/namespaces", "/secrets", "/configmaps", "/serviceaccounts",
    "/serviceaccounts/token", "/events", "/persistentvolumeclaims",
    "/persistentvolumes", *(f"storage.k8s.io/{resource}" for resource in STORAGE), EVENTS, LEASES,
    "apps/deployments", *SELECTING, "policy/poddisruptionbudgets",
    "rbac.authorization.k8s.io/clusterroles",
    *(f"resource.k8s.io/{name}" for name in DEVICE_RESOURCES.values()),
    "resource.k8s.io/resourceclaims/status", "resource.k8s.io/resourceclaims/binding",
    *(resource for _, resource, _, _ in REVIEWS),
    *GROUPS, *(f"{group}/status" for group in GROUPS),
    "authorization.k8s.io/localsubjectaccessreviews",
    QUEUES, f"{QUEUES}/status", JOBS, f"{JOBS}/status", CLASSES,
)  # fmt: skip


def resources_of(folder: Path) -> list[dict[str, Any]]:
    """What the kustomization lists, in its order; it transforms nothing but the image's name and
    the name of the generated ConfigMap."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    keys = {"apiVersion", "kind", "resources", "configMapGenerator", "images"}
    assert set(kustomization) == keys
    (generated,) = kustomization["configMapGenerator"]
    files = kustomization["resources"]
    named = [*files, *generated["files"], "kustomization.yaml"]
    assert sorted(named) == sorted(p.name for p in folder.iterdir())
    out: list[dict[str, Any]] = []
    for name in files:
        out += yaml.safe_load_all((folder / name).read_text())
    metadata = {"name": generated["name"], "namespace": generated["namespace"]}
    data = {name: (folder / name).read_text() for name in generated["files"]}
    out.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    return out


MANIFESTS = resources_of(DEPLOY / "base")
PLURALS = {"NetworkPolicy": "networkpolicies"}
CLUSTER_WIDE = (
    "Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "FlowSchema",
)  # fmt: skip


def folder_of(manifest: dict[str, Any]) -> str:
    group = manifest["apiVersion"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    kind = manifest["kind"]
    plural = PLURALS.get(kind, kind.lower() + "s")
    if kind in CLUSTER_WIDE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}"


def workloads() -> list[dict[str, Any]]:
    return [m for m in MANIFESTS if m["kind"] in ("Deployment", "StatefulSet")]


@pytest.fixture(scope="module")
def applied(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with all manifests on it."""
    for manifest in MANIFESTS:
        status, body = control_plane.request("POST", folder_of(manifest), manifest)
        assert status == 201, f"{manifest['kind']} {manifest['metadata']['name']}: {body}"
    return control_plane


def may(plane: ControlPlane, account: str, right: Right) -> bool:
    verb, resource, name, namespace = right
    group, _, path = resource.partition("/")
    kind, _, part = path.partition("/")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{NAMESPACE}",
                "system:authenticated",
            ],
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": kind, "subresource": part,
                "name": name, "namespace": namespace,
            },
        },
    }  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    status, body = plane.request("POST", path, review)
    assert status == 201, body
    return bool(body["status"]["allowed"])


@pytest.mark.kube
@pytest.mark.parametrize("account", list(EXPECTED))
def test_an_account_has_its_rights_and_no_other(applied: ControlPlane, account: str) -> None:
    asked: set[Right] = {
        (verb, resource, "", "") for verb, resource in itertools.product(VERBS, RESOURCES)
    }
    asked |= {(verb, LEASES, "", NAMESPACE) for verb in VERBS}
    asked |= {
        (verb, LEASES, name, NAMESPACE)
        for verb in VERBS
        for name in ("stretto-dispatcher", "stretto-binder", "other")
    }
    asked |= {(verb, LEASES, name, "kube-system") for verb in VERBS for name in (SERVES, "other")}
    asked |= {("get", "/namespaces", name, "") for name in ("kube-system", "default")}
    asked |= {
        ("get", LEASES, account, "kube-system"),
        ("*", "*/*", "", ""),
        ("use", "/pods", "", ""),
    }
    asked |= {("impersonate", "/users", "", ""), ("impersonate", "/serviceaccounts", "", "")}
    asked |= EXPECTED[account]
    allowed = {right for right in asked if may(applied, account, right)}
    # A right on all objects of a kind covers each of them; none of ours does that for Leases.
    assert allowed == EXPECTED[account]


GRANTED = {
    account: {
        (verb, f"{group}/{resource}", name, rules["metadata"].get("namespace", ""))
        for rules in MANIFESTS
        if rules["kind"] in ("ClusterRole", "Role") and rules["metadata"]["name"] == account
        for rule in rules["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    for account in EXPECTED
}


@pytest.mark.parametrize("account", list(EXPECTED))
def test_the_manifests_grant_what_is_expected(account: str) -> None:
    """Every rule, so that none escapes the list of what the API server is asked about below."""
    assert GRANTED[account] == EXPECTED[account]
    assert not [right for right in GRANTED[account] if "*" in right]


HARM: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("GET", "/api/v1/secrets", None),
    ("GET", "/api/v1/namespaces/stretto/configmaps", None),
    ("GET", "/api/v1/namespaces/kube-system/serviceaccounts", None),
    ("POST", "/api/v1/namespaces/default/pods", {"spec": {"containers": []}}),
    ("PUT", "/api/v1/namespaces/default/pods/p", {"metadata": {"name": "p"}}),
    ("PATCH", "/api/v1/namespaces/default/pods/p", {"metadata": {"labels": {"a": "b"}}}),
    ("DELETE", "/api/v1/namespaces/default/pods", None),
    ("POST", "/api/v1/namespaces/default/pods/p/exec?command=id", {}),
    ("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": True}}),
    ("PATCH", "/api/v1/nodes/n/status", {"status": {"capacity": {"cpu": "1"}}}),
    ("DELETE", "/api/v1/nodes/n", None),
    ("POST", "/apis/coordination.k8s.io/v1/namespaces/stretto/leases", {"metadata": {"name": "x"}}),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", None),
    ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/stretto/leases/stretto-binder", None),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {}),
    ("POST", "/api/v1/namespaces/stretto/serviceaccounts/stretto-binder/token", {}),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {}),
    ("POST", "/api/v1/namespaces/default/pods/p/binding", {"target": {"name": "n"}}),
    ("POST", "/api/v1/namespaces/default/pods/p/eviction", {}),
    ("DELETE", "/api/v1/namespaces/default/pods/p", None),
    ("PATCH", "/api/v1/namespaces/default/pods/p/status", {"status": {}}),
    ("GET", "/api/v1/pods", None),
    ("GET", "/api/v1/nodes", None),
)
ALLOWED_HARM = {
    "stretto-shard": set[int](),
    "stretto-valkey": set[int](),
    "stretto-dispatcher": {16, 20, 21},
    "stretto-binder": {16, 17, 18, 19, 20, 21, 22},
}
"""Which of them an account may do all the same: it is what it is for."""


@pytest.mark.kube
@pytest.mark.parametrize("account", list(EXPECTED))
def test_who_impersonates_an_account_is_refused_what_it_may_not(
    applied: ControlPlane, account: str
) -> None:
    """By requests as that account, not by asking about them; what is let through finds nothing."""
    kind = "application/merge-patch+json"
    refused = set()
    for number, (method, path, body) in enumerate(HARM):
        separator = "&" if "?" in path else "?"
        asked = path if method == "GET" else f"{path}{separator}dryRun=All"
        status, answer = applied.request(
            method, asked, body,
            content_type=kind if method == "PATCH" else "application/json",
            impersonate=f"system:serviceaccount:{NAMESPACE}:{account}",
        )  # fmt: skip
        if status == 403 and answer.get("reason") == "Forbidden":
            refused.add(number)
    assert set(range(len(HARM))) - refused == ALLOWED_HARM[account]


@pytest.mark.kube
def test_tokens_of_the_accounts_work(applied: ControlPlane) -> None:
    token = applied.token_for(NAMESPACE, "stretto-binder")
    assert applied.request("GET", "/api/v1/nodes?limit=1", token=token)[0] == 200
    assert applied.request("GET", "/api/v1/namespaces/stretto/secrets", token=token)[0] == 403
    token = applied.token_for(NAMESPACE, "stretto-shard")
    assert applied.request("GET", "/api/v1/nodes?limit=1", token=token)[0] == 403


@pytest.mark.kube
@pytest.mark.parametrize("account", ["stretto-dispatcher", "stretto-binder"])
def test_leases_and_other_requests_stand_where_a_crowd_cannot_hold_them_up(
    applied: ControlPlane, account: str
) -> None:
    """The API server says which flow schema a request fell under."""
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{account}"
    wanted = {lease: "stretto-leader-election", "/api/v1/pods?limit=1": "stretto"}
    token = applied.token_for(NAMESPACE, account)
    for path, name in wanted.items():
        schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
        uid = applied.request("GET", f"{schemas}/{name}")[1]["metadata"]["uid"]
        deadline = time.monotonic() + 60  # it watches them, and takes a moment to see ours
        while (found := applied.flow_schema_of(path, token)) != uid:
            assert time.monotonic() < deadline, f"{path}: {found}, not {name}"
            time.sleep(0.2)


@pytest.mark.kube
@pytest.mark.parametrize("workload", workloads(), ids=lambda w: w["metadata"]["name"])
def test_the_pods_pass_the_restricted_level(
    applied: ControlPlane, workload: dict[str, Any]
) -> None:
    template = workload["spec"]["template"]
    metadata = {**template["metadata"], "name": f"try-{workload['metadata']['name']}"}
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = [
        *template["spec"]["volumes"],
        *({"name": claim["metadata"]["name"], "emptyDir": {}} for claim in claims),
    ]
    pod = {"metadata": metadata, "spec": {**template["spec"], "volumes": volumes}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    status, body = applied.request("POST", path, pod)
    assert status == 201, body


@pytest.mark.kube
def test_the_level_refuses_what_it_should(applied: ControlPlane) -> None:
    pod = {
        "metadata": {"name": "root"},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    }
    status, body = applied.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    assert status == 403
    assert "restricted" in body["message"]


@pytest.mark.kube
def test_applying_the_leases_again_changes_nothing_of_the_holder(applied: ControlPlane) -> None:
    (lease,) = [
        m for m in MANIFESTS
        if m["kind"] == "Lease" and m["metadata"]["name"] == "stretto-binder"
    ]  # fmt: skip
    path = f"{folder_of(lease)}/stretto-binder"
    held = {"spec": {"holderIdentity": "me"}, "metadata": {"annotations": {"a": "b"}}}
    kind = "application/merge-patch+json"
    assert applied.request("PATCH", path, held, content_type=kind)[0] == 200
    status, body = applied.request("PATCH", path, lease, content_type=kind)
    assert status == 200
    assert body["spec"]["holderIdentity"] == "me"
    assert body["metadata"]["annotations"] == {"a": "b"}


def test_only_the_two_that_need_it_get_a_token() -> None:
    mounted = {
        w["metadata"]["name"]: w["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for w in workloads()
    }
    assert mounted == {
        "stretto-dispatcher": True,
        "stretto-binder": True,
        "stretto-shard": False,
        "stretto-valkey": False,
    }
    accounts = [m for m in MANIFESTS if m["kind"] == "ServiceAccount"]
    assert len(accounts) == 4
    assert not any(a["automountServiceAccountToken"] for a in accounts)


def test_only_the_binder_knows_the_ledgers_password() -> None:
    """The server has its hash, in the users' file; nobody else has any of the secret."""
    items = {
        w["metadata"]["name"]: volume["secret"]["items"]
        for w in workloads()
        for volume in w["spec"]["template"]["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") == "stretto-valkey"
    }
    assert {name: [item["key"] for item in found] for name, found in items.items()} == {
        "stretto-binder": ["password"],
        "stretto-valkey": ["users.acl"],
    }
    assert not [w for w in workloads() if "secretKeyRef" in yaml.safe_dump(w)]


def test_the_users_script_makes_the_secret_that_is_mounted() -> None:
    done = subprocess.run(
        [DEPLOY / "make-ledger-user.sh"], capture_output=True, text=True, check=True
    )
    secret = yaml.safe_load(done.stdout)
    assert secret["metadata"] == {"name": "stretto-valkey", "namespace": NAMESPACE}
    assert set(secret["stringData"]) == {"password", "users.acl"}
    assert secret["stringData"]["password"] not in secret["stringData"]["users.acl"]


def test_every_process_has_probes_a_budget_and_an_account_of_its_own() -> None:
    budgets = {
        m["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        for m in MANIFESTS
        if m["kind"] == "PodDisruptionBudget"
    }
    for workload in workloads():
        name = workload["metadata"]["name"]
        assert name in budgets
        pod = workload["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == name
        (container,) = pod["containers"]
        assert {"livenessProbe", "readinessProbe", "resources"} <= set(container)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind].get("httpGet", {"scheme": "HTTPS"})
            assert asked["scheme"] == "HTTPS", "beyond loopback it is served over TLS"
        assert container["resources"]["limits"]["memory"]


def test_the_ledger_never_evicts_and_keeps_a_file() -> None:
    (config,) = [m for m in MANIFESTS if "valkey.conf" in m.get("data", ())]
    lines = config["data"]["valkey.conf"].splitlines()
    assert "maxmemory-policy noeviction" in lines
    assert "appendonly yes" in lines
    assert {"port 0", "tls-port 6379", "tls-auth-clients yes", "aclfile /users/users.acl"} <= {
        *lines
    }


@pytest.mark.parametrize("role", ["dispatcher", "binder", "shard"])
def test_the_command_knows_every_flag_of_the_manifests(role: str) -> None:
    (workload,) = [w for w in workloads() if w["metadata"]["name"] == f"stretto-{role}"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    command, *flags = container["args"]
    assert command == role
    done = subprocess.run(
        [sys.executable, "-m", "stretto.cli.main", role, "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    known = set(re.findall(r"--[a-z-]+", done.stdout))
    assert {flag.partition("=")[0] for flag in flags} <= known
    assert role != "binder" or "--audit-log=-" in flags, "no file can be written"


def test_all_roles_get_the_one_configuration_and_it_can_be_read() -> None:
    (config,) = [m for m in MANIFESTS if "scheduler.yaml" in m.get("data", ())]
    for role in ("dispatcher", "binder", "shard"):
        (workload,) = [w for w in workloads() if w["metadata"]["name"] == f"stretto-{role}"]
        pod = workload["spec"]["template"]["spec"]
        assert "--config=/config/scheduler.yaml" in pod["containers"][0]["args"]
        mounted = {v["name"]: v.get("configMap") for v in pod["volumes"]}
        assert mounted["scheduler-config"] == {"name": config["metadata"]["name"]}
    assert configuration_of(DEPLOY / "base" / "scheduler.yaml").names == ("stretto",)


def test_the_certificates_script_makes_a_secret_for_each_process() -> None:
    done = subprocess.run(
        [DEPLOY / "make-certificates.sh"], capture_output=True, text=True, check=True
    )
    secrets = list(yaml.safe_load_all(done.stdout))
    assert [s["metadata"]["name"] for s in secrets] == [
        "stretto-dispatcher-tls", "stretto-binder-tls", "stretto-shard-tls", "stretto-valkey-tls",
        "stretto-metrics-tls",
    ]  # fmt: skip
    wanted = {
        v["secret"]["secretName"]
        for w in workloads()
        for v in w["spec"]["template"]["spec"]["volumes"]
        if "secret" in v
    }
    made = {s["metadata"]["name"] for s in secrets}
    assert wanted == made - {"stretto-metrics-tls"} | {"stretto-valkey"}
    assert len({s["data"]["ca.crt"] for s in secrets}) == 1
    assert len({s["data"]["tls.key"] for s in secrets}) == 5
