"""Asking extenders over real HTTP: what they say, and everything they can do wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import msgspec
import pytest

from scheduler_shard.asking import Doomed, Question, Reply
from scheduler_shard.extending import SPARE_DOCUMENTS, Extending
from scheduler_shard.shapes import ShapeEntry
from stretto.placement.extenders import Extender, ExtenderTls
from stretto.rpc import extender_client
from tests.shard.fake_extender import FakeExtender
from tests.shard.worlds import node, shape, unit

SCRIPT = Path(__file__).parents[2] / "deploy" / "make-certificates.sh"
NODES = tuple((change.node_id, change.row) for change in (node(1), node(2), node(3)))
POD = b'{"metadata":{"name":"p","annotations":{"a":"b"}}}'


def question(*extenders: Extender) -> Question:
    made = unit("p")
    member = msgspec.structs.replace(made.members[0], document=POD)
    made = msgspec.structs.replace(made, members=(member,))
    entry = ShapeEntry(number=1, theirs=1, shape=shape())
    return Question(made, entry, extenders, NODES)


async def reply_of(*extenders: Extender) -> Reply:
    extending = Extending(extenders, lambda asked, reply: None)
    try:
        return await extending.ask(question(*extenders))
    finally:
        await extending._client.close()


async def test_names_go_out_and_what_is_left_comes_back() -> None:
    async with FakeExtender().serving() as fake:
        fake.answers["filter"] = lambda asked: {
            "NodeNames": asked["NodeNames"][1:], "FailedNodes": {"node-1": "no card"},
        }  # fmt: skip
        fake.answers["rank"] = [{"Host": "node-2", "Score": 10}, {"Host": "node-3", "Score": 1}]
        extender = Extender(
            fake.url, filter_verb="filter", prioritize_verb="rank", weight=3,
            node_cache_capable=True,
        )  # fmt: skip
        reply = await reply_of(extender)
    assert reply.allowed == ["node-2", "node-3"]
    assert reply.failed == {"node-1": "no card"}
    assert reply.bonus == {"node-2": 300, "node-3": 30}
    verb, asked = fake.asked[0]
    assert (verb, asked["Pod"]) == ("filter", json.loads(POD))
    assert asked["Nodes"] is None
    assert fake.asked[1][1]["NodeNames"] == ["node-2", "node-3"]


async def test_an_extender_that_is_not_there_is_told_in_the_same_words_by_all() -> None:
    async with FakeExtender().serving() as fake:
        extender = Extender(fake.url, filter_verb="filter")
    reply = await reply_of(extender)
    assert "Cannot connect to host 127.0.0.1" in reply.error
    assert "object at" not in reply.error


async def test_nodes_go_out_whole_to_extenders_that_do_not_know_them() -> None:
    async with FakeExtender().serving() as fake:
        fake.answers["filter"] = lambda asked: {
            "nodes": {"items": asked["Nodes"]["items"][:1]},
            "failedAndUnresolvableNodes": {"node-2": "old", "node-3": "old"},
        }
        reply = await reply_of(Extender(fake.url, filter_verb="filter"))
    assert reply.allowed == ["node-1"]
    assert reply.unresolvable == {"node-2", "node-3"}
    sent = fake.asked[0][1]["Nodes"]["items"][0]
    assert sent["metadata"]["labels"] == {"kubernetes.io/hostname": "node-1"}
    assert sent["status"]["allocatable"]["cpu"] == "4000m"


async def test_the_second_extender_is_asked_about_what_the_first_left() -> None:
    async with FakeExtender().serving() as one, FakeExtender().serving() as two:
        one.answers["filter"] = {"NodeNames": ["node-3", "node-1"]}
        two.answers["filter"] = {"NodeNames": ["node-3"]}
        both = [
            Extender(fake.url, filter_verb="filter", node_cache_capable=True) for fake in (one, two)
        ]
        reply = await reply_of(*both)
    assert two.asked[0][1]["NodeNames"] == ["node-1", "node-3"]
    assert reply.allowed == ["node-3"]
    assert set(reply.failed) == {"node-1", "node-2"}
    assert f"rejected by extender {two.url}" in reply.failed["node-1"]


def patience(answer: object) -> float:
    """Seconds: short only where nothing will come."""
    return 0.2 if answer == "hang" else 15.0


HOSTILE = [
    ("hang", "no answer to filter in 0.2 s"),
    (500, "answered 500 to filter"),
    ({"NodeNames": ["node-1", "moon"]}, "names node 'moon', which it was not asked about"),
    ({"NodeNames": [], "FailedNodes": {"moon": "x"}}, "names node 'moon'"),
    ({"Error": "out of cards"}, "out of cards"),
    ({"NodeNames": "node-1"}, "its answer cannot be read"),
    (b"<html>", "its answer cannot be read"),
    (b"\xff\xfe", "its answer cannot be read"),
    (b"[" * 100_000, "its answer cannot be read"),
    (b'"' + b"x" * 200_000 + b'"', "its answer is longer than 100000 bytes"),
]


@pytest.mark.parametrize(("answer", "words"), HOSTILE)
@pytest.mark.parametrize("ignorable", [False, True])
async def test_one_that_hangs_or_lies_is_an_error_unless_it_is_ignorable(
    monkeypatch: pytest.MonkeyPatch, answer: object, words: str, ignorable: bool
) -> None:
    monkeypatch.setattr(extender_client, "MAX_ANSWER", 100_000)
    async with FakeExtender().serving() as fake:
        fake.answers["filter"] = answer
        reply = await reply_of(
            Extender(
                fake.url, filter_verb="filter", node_cache_capable=True, timeout_s=patience(answer),
                ignorable=ignorable,
            )
        )  # fmt: skip
    if ignorable:
        assert reply == Reply(allowed=["node-1", "node-2", "node-3"])
    else:
        assert words in reply.error
        assert fake.url in reply.error
        assert "\n" not in reply.error


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([{"Host": "moon", "Score": 1}], "scores node 'moon', which it was not asked about"),
        ([{"Host": "node-1", "Score": 11}], "scores node node-1 11, expected 0 to 10"),
        ([{"Host": "node-1", "Score": -1}], "scores node node-1 -1"),
        ([{"Host": "node-1", "Score": 1.5}], "its answer cannot be read"),
        ("hang", ""),
        (503, ""),
        ([], ""),
    ],
)
async def test_scores_that_cannot_be_had_add_nothing_and_lies_are_errors(
    answer: object, words: str
) -> None:
    async with FakeExtender().serving() as fake:
        fake.answers["rank"] = answer
        reply = await reply_of(
            Extender(fake.url, prioritize_verb="rank", weight=1, timeout_s=patience(answer))
        )
    if words:
        assert words in reply.error
    else:
        assert reply == Reply(allowed=["node-1", "node-2", "node-3"])


async def test_an_extender_that_is_not_there_is_named() -> None:
    async with FakeExtender().serving() as fake:
        gone = Extender(fake.url, filter_verb="filter")
    assert f"extender {gone.url}: " in (await reply_of(gone)).error


async def test_one_that_hangs_keeps_only_its_own_units_waiting() -> None:
    done: list[tuple[str, Reply]] = []
    async with FakeExtender().serving() as slow, FakeExtender().serving() as quick:
        slow.answers["filter"] = "hang"
        quick.answers["filter"] = {"NodeNames": ["node-2"]}
        hanging = Extender(slow.url, filter_verb="filter", timeout_s=30)
        fine = Extender(quick.url, filter_verb="filter", node_cache_capable=True)
        extending = Extending(
            (hanging, fine), lambda asked, reply: done.append((asked.extenders[0].url, reply))
        )
        running = asyncio.create_task(extending.run())
        extending.put([question(hanging) for _ in range(10)])
        extending.put([question(fine) for _ in range(10)])
        async with asyncio.timeout(5):
            while len(done) < 10:
                await asyncio.sleep(0.01)
        assert {url for url, _ in done} == {quick.url}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_certificate_files_that_cannot_be_used_are_named() -> None:
    extender = Extender("https://x", https=True, tls=ExtenderTls(authority_file="/nowhere.pem"))
    with pytest.raises(extender_client.ExtenderConfigError, match="extender https://x: tlsConfig"):
        extender_client._context(extender)
    plain = msgspec.structs.replace(extender, tls=None)
    context = extender_client._context(plain)
    assert not isinstance(context, bool)
    assert not context.check_hostname, (
        "enableHTTPS without an authority trusts anybody, as upstream"
    )


def test_nobody_is_asked_for_the_passphrase_of_a_key(tmp_path: Path) -> None:
    """OpenSSL asks the terminal for one, and here finds that there is none (errno 22)."""
    file = tmp_path / "own.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-subj", "/CN=x", "-passout", "pass:x", "-keyout", str(file), "-out", str(file)]
    subprocess.run(words, check=True, capture_output=True)
    text = file.read_text()
    for tls in (
        ExtenderTls(certificate_file=str(file), insecure=True),
        ExtenderTls(certificate=text, insecure=True),
    ):
        extender = Extender("https://x", https=True, tls=tls)
        with pytest.raises(extender_client.ExtenderConfigError, match=r"tlsConfig: \[SSL"):
            extender_client._context(extender)


async def victims_of(answer: object, *, known: bool = True, ignorable: bool = False) -> Reply:
    doomed = (Doomed(1, "node-1", ("a", "b"), 1), Doomed(2, "node-2", ("c",), 0))
    async with FakeExtender().serving() as fake:
        fake.answers["preempt"] = answer
        extender = Extender(
            fake.url, preempt_verb="preempt", node_cache_capable=known, ignorable=ignorable,
            timeout_s=patience(answer),
        )  # fmt: skip
        extending = Extending((extender,), lambda asked, reply: None)
        try:
            made = msgspec.structs.replace(question(extender), nodes=(), doomed=doomed)
            reply = await extending.ask(made)
        finally:
            await extending._client.close()
        ((_, asked),) = fake.asked
        sent = asked["NodeNameToMetaVictims" if known else "NodeNameToVictims"]
        assert sent["node-1"]["NumPDBViolations"] == 1
        uids = [pod["UID"] if known else pod["metadata"]["uid"] for pod in sent["node-1"]["Pods"]]
        assert uids == ["a", "b"]
        return reply


@pytest.mark.parametrize("known", [True, False])
async def test_an_extender_takes_candidates_away_and_names_other_victims(known: bool) -> None:
    answer = {"NodeNameToMetaVictims": {"node-1": {"Pods": [{"UID": "b"}, {"UID": "x"}]}}}
    assert (await victims_of(answer, known=known)).doomed == {"node-1": ["b", "x"]}
    assert (await victims_of({}, known=known)).doomed == {}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"NodeNameToMetaVictims": {"moon": {"Pods": [{"UID": "a"}]}}}, "names node 'moon'"),
        ({"NodeNameToMetaVictims": {"node-1": {"Pods": []}}}, "at least one victim pod on node"),
        ({"NodeNameToMetaVictims": {"node-1": None}}, "at least one victim pod on node"),
        ("hang", "no answer to preempt in 0.2 s"),
    ],
)
async def test_what_an_extender_says_wrong_of_victims(answer: object, words: str) -> None:
    assert words in (await victims_of(answer)).error


async def test_an_ignorable_extender_that_fails_leaves_the_victims_as_they_are() -> None:
    reply = await victims_of(500, ignorable=True)
    assert reply == Reply(doomed={"node-1": ["a", "b"], "node-2": ["c"]})


async def test_nodes_that_have_left_are_not_kept() -> None:
    async with FakeExtender().serving() as fake:
        fake.answers["filter"] = lambda asked: {"Nodes": asked["Nodes"]}
        extender = Extender(fake.url, filter_verb="filter")
        extending = Extending((extender,), lambda asked, reply: None)
        for number in range(1, 3000, 500):
            changes = [node(number + offset) for offset in range(500)]
            nodes = tuple((change.node_id, change.row) for change in changes)
            asked = msgspec.structs.replace(question(extender), nodes=nodes)
            assert len((await extending.ask(asked)).allowed) == 500
        assert len(extending._documents) <= 2 * 500 + SPARE_DOCUMENTS
        await extending._client.close()
