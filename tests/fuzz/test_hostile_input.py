"""Input made by machines to hurt: what cannot be read is one kind of error with one line, and
nothing else is ever raised.

Quantities, selectors, pods and nodes, watch lines, messages between the roles, answers of the
ledger's server. Time is bounded by the test's own limit.
"""

from __future__ import annotations

import asyncio
import functools
import json
import pathlib
import tempfile
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from proto import stretto_pb2 as pb
from stretto.kube.errors import KubeError
from stretto.kube.readers import BareObject, LineBuffer, Reader
from stretto.ledger.client import Ledger
from stretto.ledger.types import LedgerError
from stretto.model.errors import OperatorError
from stretto.model.objects import Node, Pod, decode_node, decode_pod
from stretto.model.quantity import MAX_AMOUNT, QuantityError, base_value, milli_value
from stretto.model.selector import SelectorError, compile_label_selector
from stretto.model.shaping import shape_of
from stretto.rpc.errors import WireError
from stretto.rpc.services import FOLLOW, OUTCOMES, PROPOSE, WORK

pytestmark = pytest.mark.timeout(120)
many = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def one_line(error: BaseException, *, longest: int = 600) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < longest


# ---------------------------------------------------------------------------------------- texts
PIECES = st.sampled_from(
    ["1", "9" * 70, "-", "+", ".", "e", "E", "e30", "e-31", "E999999", "Ki", "Ei", "m", "n", "u",
     "k", "0", "00", "\n", " ", "٣", "١", "Infinity", "NaN", "0x", "_", "i", "\x00", "𝟏"]
)  # fmt: skip


@many
@given(st.one_of(st.lists(PIECES, max_size=8).map("".join), st.text(max_size=100), st.floats(),
                 st.integers(-(10**200), 10**200)))  # fmt: skip
def test_quantities(quantity: str | float) -> None:
    for read in (base_value, milli_value):
        try:
            assert 0 <= read(quantity) <= MAX_AMOUNT
        except QuantityError as error:
            one_line(error)


@functools.cache
def json_values() -> st.SearchStrategy[Any]:
    scalar = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
        st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt", "1e200000", "9" * 70, "Always"]),
    )  # fmt: skip
    return st.recursive(
        scalar,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
        ),
        max_leaves=30,
    )


def fields_of(kind: type, seen: set[type]) -> set[str]:
    """Names of JSON fields of a type and of all that it is made of."""
    found: set[str] = set()
    stack: list[Any] = [msgspec.inspect.type_info(kind)]
    while stack:
        info = stack.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            found |= {field.encode_name for field in info.fields}
            stack += [field.type for field in info.fields]
        for name in ("item_type", "key_type", "value_type"):
            if (inner := getattr(info, name, None)) is not None:
                stack.append(inner)
        stack += getattr(info, "types", ()) or getattr(info, "item_types", ())
    return found


FIELDS = sorted(
    fields_of(Pod, set()) | fields_of(Node, set())
    | {"requests", "cpu", "memory", "containers", "resources", "affinity", "matchLabels",
       "matchExpressions", "key", "operator", "values", "labelSelector", "topologyKey",
       "nodeAffinity", "podAffinity", "podAntiAffinity", "nodeSelectorTerms", "weight",
       "requiredDuringSchedulingIgnoredDuringExecution", "preference", "podAffinityTerm",
       "preferredDuringSchedulingIgnoredDuringExecution", "initContainers", "overhead"}
)  # fmt: skip


@many
@given(json_values())
def test_selectors(raw: Any) -> None:
    try:
        selector = compile_label_selector(raw if isinstance(raw, dict) else {"matchLabels": raw})
    except SelectorError as error:
        one_line(error)
    else:
        selector.matches({"a": "b"})


def as_json(value: Any) -> bytes:
    """With NaN and Infinity, as bad writers write them."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


@many
@given(
    spec=st.dictionaries(st.sampled_from(FIELDS), json_values(), max_size=8), status=json_values()
)
def test_pods_and_nodes(spec: Any, status: Any) -> None:
    """Decoded and shaped, or refused by a sentence."""
    metadata = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1"}
    text = as_json({"metadata": metadata, "spec": spec, "status": status})
    for decode in (decode_pod, decode_node):
        try:
            found = decode(text)
        except msgspec.DecodeError as error:
            one_line(error)
            continue
        if isinstance(found, Pod):
            try:
                shape_of(found, label_keys=("a",))
            except OperatorError as error:
                one_line(error, longest=2_000)


@many
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                lambda kind, value: as_json({"type": kind, "object": value}) + b"\n",
                st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "x"]),
                json_values(),
            ),
            st.just(b'{"type":"ADDED","object":{"metadata":' + b"[" * 5_000 + b"\n"),
            st.just(b'{"type":"ADDED","object":{"metadata":{"name":"a","uid":"b"}}}\n'),
        ),
        max_size=6,
    )
)
def test_watch_lines_and_pages(pieces: list[bytes]) -> None:
    """A watch that sends anything: changes, objects that cannot be read, or the watch's end."""
    for kind in (Pod, BareObject):
        buffer, reader = LineBuffer(limit=10_000), Reader(kind)  # type: ignore[type-var]
        try:
            for piece in pieces:
                if whole := buffer.feed(piece):
                    list(reader.lines(whole))
        except KubeError as error:
            one_line(error)
        try:
            reader.page(b"".join(pieces))
        except KubeError as error:
            one_line(error)


# ------------------------------------------------------------------------------------- messages
NUMBERS = st.sampled_from([0, 1, 2, 3, 2**31 - 1, 2**32 - 1, 2**53, 2**63, 2**64 - 1])
WORDS = st.sampled_from(["", "a", "b", "x" * 300, "ü", "\n"])


def scalar_of(field: FieldDescriptor, draw: Any) -> Any:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        return draw(WORDS)
    if field.type == kinds.TYPE_BYTES:
        return draw(
            st.one_of(st.binary(max_size=20), st.just(b"\x90"), st.just(b"\xdd\xff\xff\xff"))
        )
    if field.type == kinds.TYPE_BOOL:
        return draw(st.booleans())
    if field.type in (kinds.TYPE_DOUBLE, kinds.TYPE_FLOAT):
        return draw(st.floats(width=32))
    number = draw(NUMBERS)
    if field.type in (kinds.TYPE_ENUM, kinds.TYPE_INT32, kinds.TYPE_SINT32):
        return number % 2**31
    if field.type in (kinds.TYPE_INT64, kinds.TYPE_SINT64):
        return number % 2**63
    return number % 2**32 if field.type == kinds.TYPE_UINT32 else number


@st.composite
def filled(draw: Any, kind: type[Message], depth: int = 0) -> Message:
    """A message with any of its fields set to anything of their types."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        repeated = field.is_repeated
        for _ in range(draw(st.integers(1, 3)) if repeated else 1):
            if field.message_type is not None:
                if depth < 3:
                    inner = getattr(pb, field.message_type.name)
                    made = draw(filled(inner, depth + 1))
                    target = getattr(message, field.name)
                    (target.add() if repeated else target).CopyFrom(made)
            elif repeated:
                getattr(message, field.name).append(scalar_of(field, draw))
            else:
                setattr(message, field.name, scalar_of(field, draw))
    return message


DECODERS = {
    pb.FromShard: WORK.decode_request, pb.ToShard: WORK.decode_response,
    pb.FollowRequest: FOLLOW.decode_request, pb.FollowBatch: FOLLOW.decode_response,
    pb.ProposalBatch: PROPOSE.decode_request, pb.VerdictBatch: PROPOSE.decode_response,
    pb.OutcomeRequest: OUTCOMES.decode_request, pb.OutcomeBatch: OUTCOMES.decode_response,
}  # fmt: skip


@pytest.mark.parametrize("kind", DECODERS, ids=lambda kind: kind.__name__)
@many
@given(data=st.data())
def test_messages_of_peers(kind: type[Message], data: st.DataObject) -> None:
    """Well-formed but senseless, cut, or with a byte turned."""
    raw = bytearray(data.draw(filled(kind)).SerializeToString())
    if raw and data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        DECODERS[kind](bytes(raw))
    except WireError as error:
        one_line(error, longest=2_000)


# --------------------------------------------------------------------------------------- ledger
def resp(value: Any) -> bytes:
    """As a server would write it."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(resp, value))


replies = st.recursive(
    st.one_of(
        st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=12),
        st.sampled_from([b"ok", b"fenced", b"gap", b"lost", b"refused", b"\x90", b"\xc0", b"[]"]),
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
).map(resp)  # fmt: skip
raw_replies = st.one_of(
    replies, st.binary(max_size=30), st.just(b"-ERR x\r\n"), st.just(b"+OK\r\n"),
    st.just(b"$999999999999\r\n"),
)  # fmt: skip
INFO = resp(b"redis_version:8.4.0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\naof_enabled:1")


async def talk(answers: list[bytes]) -> None:
    """A ledger whose server answers its login well and then anything."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while b"INFO" in await reader.read(1 << 16):
                writer.write(INFO)
            writer.write(left.pop(0) if left else b"-ERR no\r\n")  # and no more: half is a whole
        except OSError:
            pass
        finally:
            writer.close()

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "s"
        server = await asyncio.start_unix_server(serve, path)
        ledger = await Ledger.open(f"unix://{path}", owner="o", timeout_s=10, first_pause_s=0)
        try:
            for step in (
                ledger.install(1), ledger.entries(), ledger.sums(), ledger.load_names(),
                ledger.holdings(accounts=["n"], pods=["p"]),
            ):  # fmt: skip
                try:
                    await step
                except LedgerError as error:
                    one_line(error, longest=1_000)
        finally:
            await ledger.close()
            server.close()


@settings(max_examples=20, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.lists(raw_replies, min_size=1, max_size=6))
@example([resp(None)])
@example([resp([b"ok", b"\xdd\xff\xff\xff"])])
@example([resp([b"word"]), resp(7), b"$999999999999\r\n", b"?"])
def test_answers_of_the_ledgers_server(answers: list[bytes]) -> None:
    """Anything but an answer of the script is a ledger that cannot be used now. (A server that
    announces a thousand million elements has the parser make room for them: that one is trusted not
    to, as it is for the ledger's availability.)"""
    asyncio.run(talk(answers))
