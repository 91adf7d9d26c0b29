"""Mutual TLS with certificates inside the kubeconfig, on both ways out."""

from __future__ import annotations

import base64
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from stretto.kube.answers import BindKind
from stretto.kube.certificates import Tls
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import ConfigError, KubeUnreachable
from stretto.kube.readers import BareObject
from stretto.kube.reflector import Reflector
from tests.kube.api_server import line, pod, status_body
from tests.rpc.certificates import Authority

SCRIPT = Path(__file__).parents[2] / "deploy" / "make-certificates.sh"
Certificates = dict[str, dict[str, str]]
"""Role → the three PEM files, base64."""


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=True)
    secrets = yaml.safe_load_all(done.stdout)
    return {s["metadata"]["name"].split("-")[1]: s["data"] for s in secrets}


@pytest.fixture
async def server(certificates: Certificates, tmp_path: Path) -> AsyncIterator[str]:
    """An API server that asks for a client certificate and answers with its subject."""
    for name, data in certificates["dispatcher"].items():
        (tmp_path / name).write_bytes(base64.b64decode(data))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")

    async def version(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response({"gitVersion": dict(pair for (pair,) in subject)["commonName"]})

    async def bind(_: web.Request) -> web.Response:
        return web.json_response(status_body(201), status=201)

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", pod("a", 6)))
        return response

    app = web.Application()
    app.router.add_get("/version", version)
    app.router.add_get("/api/v1/pods", pods)
    app.router.add_post("/api/v1/namespaces/{ns}/pods/{name}/binding", bind)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def kubeconfig(folder: Path, server: str, role: dict[str, str] | None, **cluster: Any) -> Path:
    user = (
        {"client-certificate-data": role["tls.crt"], "client-key-data": role["tls.key"]}
        if role
        else {}
    )
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


@pytest.mark.parametrize("trust_env", [False, True])
async def test_a_client_certificate_identifies_us(
    server: str, certificates: Certificates, tmp_path: Path, trust_env: bool
) -> None:
    role = certificates["binder"]
    trust = {"certificate-authority-data": role["ca.crt"], "tls-server-name": "stretto-dispatcher"}
    config = await KubeConfig.from_file(kubeconfig(tmp_path, server, role, **trust))
    async with KubeClient(config, trust_env=trust_env) as client:
        assert await client.check() == "stretto-binder"
        answer = await client.bind(namespace="n", name="p", uid="u", resource_version=1, node="n1")
        assert answer.kind is BindKind.BOUND
        reflector = Reflector(client, "/api/v1/pods", kind=BareObject)
        names = []
        async for batch in reflector.run():
            names += [event.name for event in batch]
            if "a" in names:
                break


async def test_files_that_are_renewed_are_used_from_the_next_connection_on(
    server: str, certificates: Certificates, tmp_path: Path
) -> None:
    """Ours, and that of the authority, which need not be known when we start."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    files = [mounted / name for name in ("ca.crt", "tls.crt", "tls.key")]
    other = Authority(tmp_path / "other").issue("stretto-binder")
    for file, first in zip(files, (other.authority, other.certificate, other.key), strict=True):
        file.write_bytes(first.read_bytes())
    authority, certificate, key = files
    tls = Tls(
        authority=authority, certificate=certificate, key=key, server_name="stretto-dispatcher"
    )
    async with KubeClient(KubeConfig(server, origin="here", tls=tls)) as client:
        with pytest.raises(KubeUnreachable, match="certificate verify failed"):
            await client.check()
        for role in ("binder", "shard"):
            (mounted / "tls.key").write_text("half of a renewal")
            with contextlib.suppress(KubeUnreachable):  # the former ones are used meanwhile
                await client.check()
            for file in files:
                file.write_bytes(base64.b64decode(certificates[role][file.name]))
            client._transport._way._pool.close()
            assert await client.check() == f"stretto-{role}"


def test_a_key_that_needs_a_passphrase_is_refused_and_nobody_is_asked_for_it(
    certificates: Certificates, tmp_path: Path
) -> None:
    files = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "encrypted.key"
    for file in files[:2]:
        file.write_bytes(base64.b64decode(certificates["binder"][file.name]))
    words = ["openssl", "pkey", "-in", files[1], "-out", files[2], "-aes256", "-passout", "pass:x"]
    subprocess.run(words, check=True)
    tls = Tls(certificate=files[0], key=files[2])
    with pytest.raises(ConfigError, match=r"here: .* without a passphrase"):
        tls.renewable(origin="here")


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"tls-server-name": "stretto-dispatcher"}, "certificate verify failed"),
        ({"trust": True}, "certificate verify failed"),
        (
            {"trust": True, "tls-server-name": "stretto-dispatcher", "anonymous": True},
            "the API server at",
        ),
    ],
)
@pytest.mark.parametrize("trust_env", [False, True])
async def test_who_cannot_be_verified_is_not_spoken_to(
    server: str,
    certificates: Certificates,
    tmp_path: Path,
    cluster: dict[str, Any],
    words: str,
    trust_env: bool,
) -> None:
    role = certificates["binder"]
    settings = dict(cluster)
    anonymous = settings.pop("anonymous", False)
    if settings.pop("trust", False):
        settings["certificate-authority-data"] = role["ca.crt"]
    file = kubeconfig(tmp_path, server, None if anonymous else role, **settings)
    async with KubeClient(await KubeConfig.from_file(file), trust_env=trust_env) as client:
        with pytest.raises(KubeUnreachable, match=words) as caught:
            await client.check()
    assert "\n" not in str(caught.value)
