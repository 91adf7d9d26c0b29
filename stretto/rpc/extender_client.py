"""Asking HTTP extenders, in the words of k8s.io/kube-scheduler/extender/v1.

An extender is somebody else's program: it may hang, lie, or send without end. Every request has a
time-out, an answer has a bound, and what it says is checked against what it was asked. What it did
wrong becomes one sentence that names it.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from stretto.model.errors import OperatorError
from stretto.placement.extenders import MAX_EXTENDER_SCORE, Extender, ExtenderTls

MAX_ANSWER = 64 << 20
"""Bytes of an answer: one that repeats 10,000 whole nodes fits."""
MAX_TEXT = 300


class ExtenderConfigError(OperatorError):
    """An extender's certificate files cannot be used."""


_OUR_CONTEXT = re.compile(r" ssl:<[^>]*>")
"""An object of ours that aiohttp names: another text in every process, so another condition."""


class ExtenderFailed(Exception):  # noqa: N818  a result in normal life
    """An extender could not be reached, refused, or made no sense; the text names it."""

    def __init__(self, extender: Extender, text: str, *, lied: bool = False) -> None:
        super().__init__(f"extender {extender.url}: {text}")
        self.lied = lied
        """It answered, and the answer contradicts the question."""


class Filtered(msgspec.Struct):
    """What a filter call left."""

    names: list[str]
    failed: dict[str, str]
    """Node → why; preemption might help."""
    unresolvable: dict[str, str]


class _Named(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _Named


class _NodeList(msgspec.Struct):
    items: list[_Node] | None = None


class _Score(msgspec.Struct, rename={"host": "Host", "score": "Score"}):
    host: str
    score: int


class _Victim(msgspec.Struct, rename={"uid": "UID"}):
    uid: str


class _Victims(msgspec.Struct, rename={"pods": "Pods"}):
    pods: list[_Victim] | None = None


class ExtenderClient:
    """Connections to the extenders of a configuration; made in a running event loop.

    Raises:
        ExtenderConfigError: certificate files that cannot be used.
    """

    def __init__(self, extenders: Iterable[Extender]) -> None:
        self._tls = {extender: _context(extender) for extender in extenders}
        self._session = aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def filter(
        self, extender: Extender, *, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> Filtered:
        """Which of the named nodes the extender lets the pod (JSON) go to.

        ``nodes``: JSON of each node, for extenders that do not know them.

        Raises:
            ExtenderFailed: it failed, or names a node that it was not asked about.
        """
        question = _question(extender, pod, names, nodes)
        answer = await self._ask(extender, extender.filter_verb, question)
        fields = self._fields(extender, answer)
        error = self._read(extender, fields.get("error"), str) or ""
        if error:
            raise ExtenderFailed(extender, error[:MAX_TEXT])
        kept = self._kept(extender, fields)
        failed = self._read(extender, fields.get("failednodes"), dict[str, str]) or {}
        final = self._read(extender, fields.get("failedandunresolvablenodes"), dict[str, str]) or {}
        asked = set(names)
        for name in (*kept, *failed, *final):
            if name not in asked:
                text = f"names node {name[:80]!r}, which it was not asked about"
                raise ExtenderFailed(extender, text, lied=True)
        return Filtered(list(dict.fromkeys(kept)), failed, final)

    def _kept(self, extender: Extender, fields: Mapping[str, msgspec.Raw]) -> list[str]:
        names: list[str] | None = self._read(extender, fields.get("nodenames"), list[str])
        if extender.node_cache_capable and names is not None:
            return names
        found = self._read(extender, fields.get("nodes"), _NodeList)
        return [] if found is None else [node.metadata.name for node in found.items or ()]

    async def prioritize(
        self, extender: Extender, *, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
    ) -> dict[str, int]:
        """Scores 0..10 by node name.

        Raises:
            ExtenderFailed: it failed, or scores an unknown node or out of range.
        """
        question = _question(extender, pod, names, nodes)
        answer = await self._ask(extender, extender.prioritize_verb, question)
        asked = set(names)
        scores: dict[str, int] = {}
        for each in self._read(extender, answer, list[_Score]) or ():
            if each.host not in asked:
                text = f"scores node {each.host[:80]!r}, which it was not asked about"
                raise ExtenderFailed(extender, text, lied=True)
            if not 0 <= each.score <= MAX_EXTENDER_SCORE:
                text = f"scores node {each.host} {each.score}, expected 0 to {MAX_EXTENDER_SCORE}"
                raise ExtenderFailed(extender, text, lied=True)
            scores[each.host] = each.score
        return scores

    async def preempt(
        self,
        extender: Extender,
        *,
        pod: bytes,
        doomed: Mapping[str, Sequence[str]],
        violations: Mapping[str, int],
    ) -> dict[str, list[str]]:
        """The candidates of preemption (node → uids of victims) that the extender leaves.

        Raises:
            ExtenderFailed: it failed, or names another node, or no victim on one.
        """
        listed = {
            name: {
                "Pods": [_victim(extender, uid) for uid in uids],
                "NumPDBViolations": violations.get(name, 0),
            }
            for name, uids in doomed.items()
        }
        known = extender.node_cache_capable
        body = b'{"Pod":%b,"NodeNameToVictims":%b,"NodeNameToMetaVictims":%b}' % (
            pod, msgspec.json.encode(None if known else listed),
            msgspec.json.encode(listed if known else None),
        )  # fmt: skip
        fields = self._fields(extender, await self._ask(extender, extender.preempt_verb, body))
        kind = dict[str, _Victims | None]
        answer = self._read(extender, fields.get("nodenametometavictims"), kind) or {}
        left: dict[str, list[str]] = {}
        for name, victims in answer.items():
            uids = [] if victims is None else [pod.uid for pod in victims.pods or ()]
            if name not in doomed:
                text = f"names node {name[:80]!r}, which it was not asked about"
                raise ExtenderFailed(extender, text, lied=True)
            if uids:
                left[name] = uids
            elif not extender.ignorable:
                text = f"expected at least one victim pod on node {name!r}"
                raise ExtenderFailed(extender, text, lied=True)
        return left

    async def bind(
        self, extender: Extender, *, namespace: str, name: str, uid: str, node: str
    ) -> None:
        """Have the extender bind a pod.

        Raises:
            ExtenderFailed: it did not say that it has; it may have nevertheless.
        """
        body = msgspec.json.encode(
            {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node}
        )
        fields = self._fields(extender, await self._ask(extender, extender.bind_verb, body))
        error = self._read(extender, fields.get("error"), str) or ""
        if error:
            raise ExtenderFailed(extender, error[:MAX_TEXT])

    async def _ask(self, extender: Extender, verb: str, body: bytes) -> bytes:
        url = f"{extender.url}/{verb}"
        timeout = aiohttp.ClientTimeout(total=extender.timeout_s)
        tls = self._tls[extender]
        try:
            async with self._session.post(
                url, data=body, timeout=timeout, ssl=tls, allow_redirects=False,
                headers={"Content-Type": "application/json"},
                server_hostname=(extender.tls.server_name or None) if extender.tls else None,
            ) as reply:  # fmt: skip
                if reply.status != 200:
                    raise ExtenderFailed(extender, f"answered {reply.status} to {verb}")
                return await _bounded(reply, extender)
        except TimeoutError:
            text = f"no answer to {verb} in {extender.timeout_s:g} s"
            raise ExtenderFailed(extender, text) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = _OUR_CONTEXT.sub("", str(error))
            text = " ".join(said.split())[:MAX_TEXT] or type(error).__name__
            raise ExtenderFailed(extender, text) from None

    def _fields(self, extender: Extender, answer: bytes) -> dict[str, msgspec.Raw]:
        """The fields of an object by lower-case name: Go programs write and read any case."""
        found = self._read(extender, answer, dict[str, msgspec.Raw])
        return {name.lower(): value for name, value in (found or {}).items()}

    def _read(self, extender: Extender, data: bytes | msgspec.Raw | None, kind: Any) -> Any:
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind | None)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = f"its answer cannot be read: {str(error)[:MAX_TEXT]}"
            raise ExtenderFailed(extender, text, lied=True) from None


def _victim(extender: Extender, uid: str) -> dict[str, object]:
    """MetaPod for extenders that know the pods; of a whole Pod only its uid is known here."""
    return {"UID": uid} if extender.node_cache_capable else {"metadata": {"uid": uid}}


def _question(
    extender: Extender, pod: bytes, names: Sequence[str], nodes: Mapping[str, bytes]
) -> bytes:
    """ExtenderArgs."""
    if extender.node_cache_capable:
        return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (pod, msgspec.json.encode(names))
    items = b",".join(nodes[name] for name in names)
    return b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (pod, items)


async def _bounded(reply: aiohttp.ClientResponse, extender: Extender) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in reply.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER:
            text = f"its answer is longer than {MAX_ANSWER} bytes"
            raise ExtenderFailed(extender, text, lied=True)
        parts.append(part)
    return b"".join(parts)


def _context(extender: Extender) -> ssl.SSLContext | bool:
    """How TLS is checked, as upstream: enableHTTPS without an authority trusts anybody."""
    tls = extender.tls or ExtenderTls()
    try:
        authority = tls.authority or (
            Path(tls.authority_file).read_text() if tls.authority_file else ""
        )
        context = ssl.create_default_context(cadata=authority or None)
        if tls.insecure or (extender.https and not authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _load_own(context, tls)
    except (OSError, ValueError) as error:
        raise ExtenderConfigError(f"extender {extender.url}: tlsConfig: {error}") from None
    return context


def _load_own(context: ssl.SSLContext, tls: ExtenderTls) -> None:
    """Our own certificate; OpenSSL takes it from files only, and asks the terminal for a password
    that is not given."""
    if tls.certificate_file or tls.key_file:
        context.load_cert_chain(tls.certificate_file, tls.key_file or None, password="")
    elif tls.certificate:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{tls.certificate}\n{tls.key}\n")
            file.flush()
            context.load_cert_chain(file.name, password="")
