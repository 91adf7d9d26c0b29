"""kubeconfig files, service accounts and addresses: what is read, and one clear line for what is
not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import ConfigError, KubeRefused, KubeUnreachable
from tests.kube.api_server import answer, client_of, hang_up, refusal, serving


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    file = folder / "config"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}, {"name": "v", "user": {"token": "other"}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
            {"name": "y", "context": {"cluster": "c", "user": "v"}},
        ],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(document))
    return file


async def test_a_token_and_the_choice_of_a_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, {"token": "abc"})
    config = await KubeConfig.from_file(file)
    assert (config.url, config.authorization()) == ("http://127.0.0.1:1", "Bearer abc")
    assert (await KubeConfig.from_file(file, "y")).authorization() == "Bearer other"


async def test_who_we_are_in_the_order_of_kubectl(tmp_path: Path) -> None:
    """A token before its file, both before a password; without a user, nobody."""
    (tmp_path / "token").write_text("of-file")
    password = {"username": "u", "password": "p"}
    for user, expected in (
        ({"token": "abc", "tokenFile": "token", **password}, "Bearer abc"),
        ({"tokenFile": "token", **password}, "Bearer of-file"),
        (password, "Basic dTpw"),
        ({}, ""),
    ):
        config = await KubeConfig.from_file(kubeconfig(tmp_path, user))
        assert config.authorization() == expected
    file = kubeconfig(tmp_path, {})
    file.write_text(file.read_text().replace("user: u", "user: nobody"))
    assert (await KubeConfig.from_file(file)).authorization() == ""


async def test_certificates_as_data_go_before_files(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(b"of a file")
    user = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    https = {"server": "https://127.0.0.1:1", "certificate-authority": "ca"}
    file = kubeconfig(tmp_path, user, **https, **{"tls-server-name": "other"})
    tls = (await KubeConfig.from_file(file)).tls
    assert (tls.authority, tls.certificate, tls.key) == (tmp_path / "ca", b"cert", b"key")
    assert (tls.verify, tls.server_name) == (True, "other")
    more = {"certificate-authority-data": "Y2E=", "insecure-skip-tls-verify": True}
    tls = (await KubeConfig.from_file(kubeconfig(tmp_path, user, **https, **more))).tls
    assert (tls.authority, tls.verify) == (b"ca", False)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"server": 7}, "Expected `str`, got `int` - at `$.clusters[0].cluster.server`"),
        ({"certificate-authority": "gone"}, "there is no file "),
        ({"certificate-authority-data": "€"}, "data that is not base64"),
        ({"certificate-authority-data": "abc"}, "data that is not base64"),
        ({"insecure-skip-tls-verify": "maybe"}, "Expected `bool | null`, got `str`"),
    ],
)
async def test_a_cluster_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, cluster: dict[str, Any], words: str
) -> None:
    file = kubeconfig(tmp_path, {}, **{"server": "https://127.0.0.1:1", **cluster})
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        await KubeConfig.from_file(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


async def test_a_token_file_is_read_again_when_it_is_a_minute_old(tmp_path: Path) -> None:
    now = 0.0
    (tmp_path / "token").write_text("one\n")
    file = kubeconfig(tmp_path, {"tokenFile": "token"})
    config = await KubeConfig.from_file(file)
    config._clock = lambda: now
    assert config.authorization(fresh=True) == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    now = 59.0
    assert config.authorization() == "Bearer one"
    now = 61.0
    assert config.authorization() == "Bearer two"


async def test_a_token_file_that_is_gone_for_a_while_leaves_us_the_former_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in a request that has begun would end the process that sends it."""
    now = 0.0
    token = tmp_path / "token"
    token.write_text("one")
    config = await KubeConfig.from_file(kubeconfig(tmp_path, {"tokenFile": "token"}))
    config._clock = lambda: now
    assert config.authorization(fresh=True) == "Bearer one"
    token.unlink()
    now = 61.0
    assert [config.authorization() for _ in range(3)] == ["Bearer one"] * 3
    assert len(caplog.records) == 1, "once a minute, not with each request"
    token.write_text("two")
    assert config.authorization(fresh=True) == "Bearer two"


async def test_a_second_try_without_an_answer_is_not_counted_as_the_first_ones(
    tmp_path: Path,
) -> None:
    (tmp_path / "token").write_text("t")
    async with serving(refusal(401, "Unauthorized"), hang_up) as server:
        file = kubeconfig(tmp_path, {"tokenFile": "token"}, server=server.url)
        async with KubeClient(await KubeConfig.from_file(file)) as client:
            with pytest.raises(KubeUnreachable):
                await client.get("/api/v1/pods/p")
            codes = {code: count for (_, _, code), count in client.usage.snapshot().items()}
    assert codes == {401: 1, 0: 1}


async def test_the_service_account_of_the_pod(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    (tmp_path / "ca.crt").write_text("x")
    with pytest.raises(ConfigError, match=r"token file .* cannot be read"):
        KubeConfig.in_cluster(environ=environ, folder=tmp_path)
    (tmp_path / "token").write_text("tok")
    config = KubeConfig.in_cluster(environ=environ, folder=tmp_path)
    assert (config.url, config.authorization()) == ("https://[fd00::1]:443", "Bearer tok")
    with pytest.raises(ConfigError, match="not inside a cluster"):
        KubeConfig.in_cluster(environ={}, folder=tmp_path)


async def test_a_token_that_ran_out_is_read_again_at_once(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    async with serving(refusal(401, "Unauthorized"), answer(200, {"gitVersion": "v1"})) as server:
        file = kubeconfig(tmp_path, {"tokenFile": "token"}, server=server.url)
        config = await KubeConfig.from_file(file)
        async with KubeClient(config) as client:
            config.authorization()
            (tmp_path / "token").write_text("new")
            assert await client.check() == "v1"
        assert [r.headers["Authorization"] for r in server.requests] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"exec": {"command": "aws"}}, "exec plug-in"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({"as": "root", "token": "t"}, "impersonation"),
        ({"tokenFile": "missing"}, "missing"),
        ({"token": "a\r\nX-Evil: 1"}, "characters that no token has"),
    ],
)
async def test_credentials_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, user: dict[str, Any], words: str
) -> None:
    file = kubeconfig(tmp_path, user)
    with pytest.raises(ConfigError, match=words) as caught:
        await KubeConfig.from_file(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[", "a: 1", "clusters: []", "clusters: [7]\ncurrent-context: x\ncontexts: 3"]
)
async def test_files_that_are_no_kubeconfig_are_refused_in_one_line(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(str(file))) as caught:
        await KubeConfig.from_file(file)
    assert "\n" not in str(caught.value)


async def test_a_missing_file_and_a_missing_context_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        await KubeConfig.from_file(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="name zz"):
        await KubeConfig.from_file(kubeconfig(tmp_path, {"token": "a"}), "zz")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8080",
        "ftp://x",
        "http://",
        "http://x:y",
        "http://u:p@x",
        "http://x\r\nA: b",
        "http://ü",
    ],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"give http\(s\)://HOST:PORT"):
        KubeConfig.from_url(url)


async def test_a_certificate_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "bad.crt").write_text("no certificate")
    file = kubeconfig(
        tmp_path,
        {"token": "t"},
        server="https://127.0.0.1:1",
        **{"certificate-authority": "bad.crt"},
    )
    config = await KubeConfig.from_file(file)
    with pytest.raises(ConfigError, match="certificates cannot be loaded"):
        async with KubeClient(config):
            pass


async def test_check_tells_an_api_server_from_anything_else() -> None:
    async with serving(answer(200, b"<html>")) as server, client_of(server) as client:
        with pytest.raises(KubeRefused, match="not a Kubernetes API server"):
            await client.check()
    async with serving(refusal(403, "no")) as server, client_of(server) as client:
        with pytest.raises(KubeRefused, match="answered 403"):
            await client.check()
    async with serving(hang_up) as server:
        url = server.url
    async with KubeClient(KubeConfig.from_url(url)) as client:
        with pytest.raises(KubeUnreachable, match="cannot be reached"):
            await client.check()
