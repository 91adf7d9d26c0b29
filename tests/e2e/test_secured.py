"""All roles as a deployment has them: certificates, accounts, a ledger with users, guarded metrics.

And nothing secret in what they say: their output at the most talkative level, what they tell
monitors and API objects, while things fail too.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from stretto.audit.checker import AUDIT_LOG
from tests.deploy.test_manifests import MANIFESTS, folder_of
from tests.e2e.api import Api, node_of, scheduled_condition
from tests.e2e.stack import Stack, StackSettings, until
from tests.kube_env.control_plane import ControlPlane
from tests.ledger.users import PASSWORD, put_in_force, sync_hand
from tests.rpc.certificates import Authority, Issued

pytestmark = [pytest.mark.kube, pytest.mark.e2e, pytest.mark.timeout(240)]

NAMESPACE = "stretto"
IN_ENVIRONMENT = "a-secret-of-the-pods-own"
SHORTEST = 12
"""Characters of a secret that are looked for at least."""


@pytest.fixture
def accounts(plane: ControlPlane) -> ControlPlane:
    """The control plane with all manifests of deploy/base applied, and two accounts that ask for
    metrics: one that may, one that may not."""
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reads-metrics"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "stretto-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}],
    }
    people = [
        {"apiVersion": "v1", "kind": "ServiceAccount",
         "metadata": {"name": name, "namespace": NAMESPACE}}
        for name in ("reader", "other")
    ]  # fmt: skip
    for manifest in (*MANIFESTS, *people, reader):
        status, body = plane.request("POST", folder_of(manifest), manifest)
        assert status in (201, 409), body
    return plane


@dataclasses.dataclass
class Deployment:
    """What the roles are given."""

    settings: StackSettings
    certificates: dict[str, Issued]
    secrets: list[str]
    password_file: Path


@pytest.fixture
def deployment(accounts: ControlPlane, tmp_path: Path) -> Deployment:
    authority = Authority(tmp_path / "authority")
    roles = ("binder", "dispatcher", "shard", "metrics")
    issued = {role: authority.issue(f"stretto-{role}") for role in roles}
    files = {
        role: accounts.kubeconfig_for(NAMESPACE, f"stretto-{role}")
        for role in ("binder", "dispatcher")
    }
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD)
    settings = StackSettings(
        binder_kubeconfig=files["binder"],
        dispatcher_kubeconfig=files["dispatcher"],
        lease_namespace=NAMESPACE,
        log_level="debug",
        ledger_login=login(password_file),
    )
    ports = settings.ports
    outside = {"binder": ports.binder_http, "dispatcher": ports.dispatcher_http}
    flags = {role: issued[role].flags() for role in ("binder", "dispatcher", "shard")}
    for role, port in outside.items():
        flags[role].append(f"--telemetry-listen=0.0.0.0:{port}")
    secrets = [PASSWORD, IN_ENVIRONMENT, *(token_in(file) for file in files.values())]
    for one in issued.values():
        secrets += key_lines(one.key)
    return Deployment(dataclasses.replace(settings, flags=flags), issued, secrets, password_file)


def login(password_file: Path) -> Callable[[str], list[str]]:
    def prepare(url: str) -> list[str]:
        user = put_in_force(url).replace(f":{PASSWORD}@", "@")
        return ["--redis-url", user, "--redis-password-file", str(password_file)]

    return prepare


def token_in(kubeconfig: Path) -> str:
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    return str(user["user"]["token"])


def key_lines(key: Path) -> list[str]:
    """The secret lines of a PEM key, which are secret each."""
    return [line for line in key.read_text().splitlines() if "-----" not in line]


def ask(
    url: str, *, trusted: Path, token: str = "", client: Issued | None = None
) -> tuple[int, str]:
    """The status of a GET, and the text."""
    context = ssl.create_default_context(cafile=str(trusted))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=15, context=context) as reply:
            return int(reply.status), reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics_are_guarded(accounts: ControlPlane, deployment: Deployment) -> str:
    """401 without a token or with a wrong one, 403 without the right, 200 with it; all answers."""
    certificates = deployment.certificates
    tokens = {name: accounts.token_for(NAMESPACE, name) for name in ("reader", "other")}
    ports, text = deployment.settings.ports, ""
    for role, port in (("binder", ports.binder_http), ("dispatcher", ports.dispatcher_http)):
        url, trusted = f"https://127.0.0.1:{port}", certificates[role].authority
        asked = [
            ask(f"{url}/metrics", trusted=trusted),
            ask(f"{url}/metrics", trusted=trusted, token="wrong.wrong.wrong"),
            ask(f"{url}/metrics", trusted=trusted, token=tokens["other"]),
            ask(f"{url}/metrics", trusted=trusted, token=tokens["reader"]),
            ask(f"{url}/metrics", trusted=trusted, client=certificates["metrics"]),
            ask(f"{url}/metrics", trusted=trusted, client=certificates["shard"]),
            ask(f"{url}/livez", trusted=trusted),
            ask(f"{url}/readyz", trusted=trusted),
        ]
        found = [status for status, _ in asked]
        assert found == [401, 401, 403, 200, 200, 401, 200, 200], role
        shown = ["stretto_api_requests_total" in body for _, body in asked]
        assert shown == [status == 200 for status in found[:6]] + [False] * 2, role
        text += "".join(body for _, body in asked)
    deployment.secrets += tokens.values()
    return text


def said(stack: Stack) -> Iterator[tuple[str, str]]:
    """All that the roles have written, and how they were started."""
    for file in [*(stack.folder / "logs").iterdir(), stack.folder / AUDIT_LOG]:
        yield file.name, file.read_text(errors="replace")
    for name, role in stack.supervisor.roles.items():
        if role.process is not None:
            command = Path(f"/proc/{role.process.pid}/cmdline").read_bytes()
            yield f"command of {name}", command.decode(errors="replace")


def with_token(kubeconfig: Path | None, token: str) -> str:
    assert kubeconfig is not None
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"]["token"] = token
    return yaml.safe_dump(document)


async def refused_starts(stack: Stack, deployment: Deployment) -> str:
    """What a Binder and a dispatcher say that start with wrong passwords and tokens."""
    wrong = stack.folder / "wrong-password"
    wrong.write_text("a-wrong-but-secret-password")
    stale = stack.folder / "stale.kubeconfig"
    stale.write_text(with_token(deployment.settings.binder_kubeconfig, "a-wrong-but-secret-token"))
    roles = stack.supervisor.roles
    text = ""
    for name, flag in (
        ("binder", f"--redis-password-file={wrong}"),
        ("binder", f"--kubeconfig={stale}"),
        ("dispatcher", f"--kubeconfig={stale}"),
        ("dispatcher", f"--tls-key={deployment.certificates['shard'].key}"),
    ):
        process = await asyncio.create_subprocess_exec(
            *command_of(roles[name].arguments, flag),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 2, output.decode()
        text += output.decode()
    assert "Traceback" not in text
    return text


def command_of(arguments: list[str], flag: str) -> list[str]:
    return [sys.executable, "-m", "stretto.cli.main", *arguments, flag]


def without_secrets(name: str, text: str, secrets: list[str]) -> None:
    for secret in secrets:
        assert len(secret) >= SHORTEST
        encoded = base64.b64encode(secret.encode()).decode()
        for form in (secret, encoded, json.dumps(secret)[1:-1]):
            at = text.find(form)
            assert at < 0, f"{name} shows a secret: …{text[max(0, at - 80) : at]}"


async def test_a_deployments_security_is_in_force_and_tells_no_secret(
    accounts: ControlPlane, api: Api, tmp_path: Path, deployment: Deployment
) -> None:
    await api.create_nodes(3)
    environment = [{"name": "TOKEN", "value": IN_ENVIRONMENT}]
    async with Stack(tmp_path, accounts.kubeconfig, unwatched(deployment.settings)) as stack:
        await api.all(api.create_pod(f"p-{i}") for i in range(10))
        container = {"name": "c", "image": "i", "env": environment}
        await api.create_pod("with-secret", containers=[container])
        await api.create_pod("big", cpu="999")

        async def decided() -> bool:
            pods = await api.pods()
            return all(node_of(p) or scheduled_condition(p) for p in pods)

        await until(decided, timeout_s=60, what="every pod bound or told why not")
        assert await api.bound() == 11
        told = {
            "metrics": await asyncio.to_thread(metrics_are_guarded, accounts, deployment),
            "a refused start": await refused_starts(stack, deployment),
            "events": str(await api.events("Scheduled"))
            + str(await api.events("FailedScheduling")),
            "conditions": str([pod["status"] for pod in await api.pods()]),
        }

        # The ledger's password is changed: first under the Binder, then in its file.
        with sync_hand(stack.server.url) as hand:
            rules = ("ACL", "SETUSER", "stretto-binder", "resetpass", ">another-secret-password")
            hand.execute_command(*rules)
            hand.execute_command("CLIENT", "KILL", "USER", "stretto-binder")
        await api.create_pod("later")

        def turned_away() -> bool:
            with sync_hand(stack.server.url) as hand:
                log = hand.execute_command("ACL", "LOG")
            return any("stretto-binder" in str(e) and "auth" in str(e) for e in log)

        await until(turned_away, timeout_s=60, what="the Binder tried the former password")
        deployment.password_file.write_text("another-secret-password")

        async def bound() -> bool:
            return bool(node_of(await api.pod("later")))

        await until(bound, timeout_s=60, what="bound with the new password")
        deployment.secrets += [
            "another-secret-password", "a-wrong-but-secret-password", "a-wrong-but-secret-token",
        ]  # fmt: skip
        told.update(said(stack))
        for name in ("binder", "dispatcher", "shard-1", "shard-2"):
            assert told[f"{name}.log"].count("\n") > 3, "it says something"
            assert "is for a certificate" not in told[f"{name}.log"]
        with pytest.raises(AssertionError, match="shows a secret"):
            without_secrets("a test", f"x {PASSWORD} y", deployment.secrets)
        for name, text in told.items():
            without_secrets(name, text, deployment.secrets)


def unwatched(settings: StackSettings) -> StackSettings:
    """Health is behind TLS, so readiness is seen by what the roles do."""
    return dataclasses.replace(settings, ready_urls=False)
