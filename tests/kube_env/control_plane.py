"""A real control plane on loopback for tests: etcd, kube-apiserver and, if asked for,
kube-scheduler.

Everything lives in one folder, on free ports, and dies with the process that started it. There is
no controller manager and no kubelet: objects stay as they are written, so tests play those parts
themselves.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import http.client
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

READY_S = 60.0
ADMIN = "admin"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ControlPlane:
    """Start with ``with``; then :attr:`url`, :attr:`kubeconfig` and :meth:`request` are usable."""

    def __init__(
        self,
        folder: Path,
        binaries: Path,
        *,
        apiserver_flags: Sequence[str] = (),
        admit_service_accounts: bool = False,
    ) -> None:
        self.folder = folder
        self.binaries = binaries
        self.admin_token = secrets.token_urlsafe(24)
        self.port, self._etcd_port, self._etcd_peer_port = _free_ports(3)
        self._apiserver_flags = list(apiserver_flags)
        self._disabled = ["TaintNodesByCondition"]
        if not admit_service_accounts:
            # Nobody makes the default service account here, without which pods are refused.
            self._disabled.append("ServiceAccount")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self._write_credentials()
        try:
            self.start_etcd()
            self._advance_versions()
            self.start_apiserver()
            self.kubeconfig = self.write_kubeconfig("admin", self.admin_token)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        """The certificate to trust; kube-apiserver makes it at its first start."""
        return self.folder / "certs" / "apiserver.crt"

    # --- processes -----------------------------------------------------------------------------

    def start_etcd(self) -> None:
        """Start etcd on the data of this folder."""
        own = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._etcd_peer_port}"
        self._spawn(
            "etcd",
            "--data-dir", str(self.folder / "etcd"),
            "--listen-client-urls", own,
            "--advertise-client-urls", own,
            "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes", "8589934592",
            "--log-level", "warn",
        )  # fmt: skip

    def start_apiserver(self) -> None:
        """Start kube-apiserver and wait until it is ready."""
        key = str(self.folder / "service-account.key")
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'certs'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--disable-admission-plugins={','.join(self._disabled)}",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            *self._apiserver_flags,
            *self._audit_flags(),
        )
        self._wait_ready()

    def _audit_flags(self) -> list[str]:
        """With the variable STRETTO_AUDIT: who of namespace stretto asks for what, into files of
        that folder."""
        folder = os.environ.get("STRETTO_AUDIT")
        if not folder:
            return []
        policy = self.folder / "audit-policy.yaml"
        document = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                {"level": "Metadata", "userGroups": ["system:serviceaccounts:stretto"]},
                {"level": "None"},
            ],
        }
        policy.write_text(yaml.safe_dump(document))
        log = Path(folder) / f"audit-{self.port}.jsonl"
        return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]

    def start_scheduler(self, config: Mapping[str, Any] | None = None, *flags: str) -> None:
        """Start kube-scheduler, with upstream's default profile unless ``config`` says
        otherwise."""
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 5000},
            "leaderElection": {"leaderElect": False},
            **(config or {}),
        }
        file = self.folder / "scheduler.yaml"
        file.write_text(yaml.safe_dump(document))
        self._spawn("kube-scheduler", f"--config={file}", "--secure-port=0", *flags)

    def start_controller_manager(self, *controllers: str) -> None:
        """Start kube-controller-manager with these controllers and no others."""
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(controllers)}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            "--pvclaimbinder-sync-period=2s",
        )

    def pid(self, name: str) -> int:
        """The process id of ``etcd``, ``kube-apiserver`` or ``kube-scheduler``."""
        return self._processes[name].pid

    @property
    def etcd_address(self) -> str:
        """Where etcd serves."""
        return f"127.0.0.1:{self._etcd_port}"

    def command(self, name: str) -> list[str]:
        """How a process was started."""
        return [str(word) for word in self._processes[name].args]  # type: ignore[union-attr]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP."""
        self._processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL one process and wait until it has gone, so that its port is free again."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Kill all processes; nothing here is worth an orderly end."""
        for name in list(self._processes):
            self.kill(name)

    def log_of(self, name: str, *, lines: int = 15) -> str:
        """The end of a process's output."""
        file = self.folder / f"{name}.log"
        text = file.read_text(errors="replace") if file.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    # --- access --------------------------------------------------------------------------------

    def write_kubeconfig(self, user: str, token: str) -> Path:
        """A kubeconfig file for a bearer token."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.authority)},
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        file = self.folder / f"{user}.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file

    def token_for(self, namespace: str, name: str) -> str:
        """A token of an existing service account, as a pod of it would get."""
        status, body = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            },
        )
        assert status == 201, body
        return str(body["status"]["token"])

    def kubeconfig_for(self, namespace: str, name: str) -> Path:
        """A kubeconfig that acts as a service account."""
        return self.write_kubeconfig(f"{namespace}-{name}", self.token_for(namespace, name))

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        content_type: str = "application/json",
        impersonate: str = "",
    ) -> tuple[int, dict[str, Any]]:
        """One plain request, independent of the code under test: (status, decoded body)."""
        headers = {
            "Authorization": f"Bearer {token or self.admin_token}",
            "Content-Type": content_type,
            "Accept": "application/json",
        }
        if impersonate:
            headers["Impersonate-User"] = impersonate
        with contextlib.closing(self._connection()) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, body=data, headers=headers)
            reply = connection.getresponse()
            raw = reply.read()
        try:
            return reply.status, json.loads(raw)
        except ValueError:
            return reply.status, {"text": raw.decode(errors="replace")}

    def flow_schema_of(self, path: str, token: str) -> str:
        """The uid of the flow schema that a GET falls under."""
        with contextlib.closing(self._connection()) as connection:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().getheader("X-Kubernetes-PF-FlowSchema-UID", "")

    # --- inside --------------------------------------------------------------------------------

    def _connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=15, context=context)

    def _write_credentials(self) -> None:
        (self.folder / "tokens.csv").write_text(
            f'{self.admin_token},{ADMIN},{ADMIN},"system:masters"\n'
        )
        (self.folder / "service-account.key").write_text(_new_ec_key())

    def _advance_versions(self) -> None:
        """Make etcd's first versions older than any watch cache, as they are in a cluster with a
        past.

        A watch that asks for version 1 is then answered 410.
        """
        deadline = time.monotonic() + READY_S
        done = 0
        while done < 10:
            assert time.monotonic() < deadline, f"etcd is not ready:\n{self.log_of('etcd')}"
            connection = http.client.HTTPConnection("127.0.0.1", self._etcd_port, timeout=5)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.request("POST", "/v3/kv/put", body='{"key": "cGFzdA==", "value": ""}')
                done += connection.getresponse().status == 200
                continue
            time.sleep(0.05)

    def _spawn(self, name: str, *arguments: str) -> None:
        assert name not in self._processes, f"{name} runs already"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self.binaries / name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call
            )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(
                        f"{name} ended with {process.returncode}:\n{self.log_of(name)}"
                    )
            if self.authority.exists():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if self.request("GET", "/readyz")[0] == 200:
                        return
            time.sleep(0.1)
        raise RuntimeError(f"not ready in {READY_S:g} s:\n{self.log_of('kube-apiserver')}")


def _die_with_parent() -> None:
    """Runs in the child before exec: SIGKILL it when the thread that started it is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _new_ec_key() -> str:
    """A P-256 private key in SEC 1 form; its public half is implied, so 48 bytes of DER suffice."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    number = secrets.randbelow(order - 1) + 1
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    content = b"\x02\x01\x01" + b"\x04\x20" + number.to_bytes(32, "big") + curve
    der = b"\x30" + bytes([len(content)]) + content
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{text}-----END EC PRIVATE KEY-----\n"
