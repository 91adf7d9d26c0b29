"""All shapes of pending pods: interned and counted.

Numbers are given
out once and never reused, so a number that a shard has heard always means the same shape. A shape
that no pod uses any more is kept for a while (an LRU bounded in entries): bursts of the same few
shapes come again, and a stable number saves sending the definition once more.

The labels of a shape are a projection on the keys that some selector in the cluster reads (design
§12.10). When the Binder's log announces more keys, every record is projected again from its whole
label set.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

import msgspec

from dispatcher.pods import PodRecord
from dispatcher.shape_records import GROUP_LINE, Mode, ShapeRecord
from stretto.model.shape import LABEL_KEYS_LIMIT, Shape


class ShapeTable:
    """Interns shapes; owns their numbers and their projection."""

    def __init__(self, *, idle_limit: int = 4096) -> None:
        self.by_key: dict[bytes, ShapeRecord] = {}
        self.by_number: dict[int, ShapeRecord] = {}
        self.label_keys: tuple[str, ...] = ()
        """What the Binder's log shows of pods; sorted."""
        self._readers: Counter[str] = Counter()
        """Label keys that selectors of pending pods read, with how many shapes do."""
        self._asked: set[str] = set()
        """Keys that the Binder was asked for."""
        self.dropped: list[int] = []
        """Numbers that mean nothing any more, for those who remember what they told whom."""
        self._idle: OrderedDict[int, ShapeRecord] = OrderedDict()
        self._idle_limit = idle_limit
        self._next = 1

    def intern(self, shape: Shape) -> ShapeRecord:
        """The record of a shape. A shape with a hard constraint that is not built gets one that
        refuses.
        """
        key = shape.digest
        record = self.by_key.get(key)
        if record is None:
            record = self._new(key=key, shape=shape, refusal=self._refusal(shape))
        return record

    def _refusal(self, shape: Shape) -> str:
        if shape.unbuilt_hard:
            return unbuilt_text(shape.unbuilt_hard)
        known = self._asked.union(self._readers, self.label_keys)  # a Binder never forgets one
        new = sorted(shape.reads - known)
        if len(known) + len(new) > LABEL_KEYS_LIMIT and new:
            return (
                f"the pod's selectors read new label keys ({', '.join(new[:3])}, …) "
                f"beyond the {LABEL_KEYS_LIMIT} that selectors of the cluster may read in all"
            )
        return ""

    def refused(self, text: str) -> ShapeRecord:
        """The record shared by pods that cannot be read for the same reason."""
        return self._of_key(b"refused:" + text.encode(), shape=None, refusal=text)

    def line_of(self, name: str, member: ShapeRecord) -> ShapeRecord:
        """The line of a pod group, in which a member of this shape stands for all."""
        assert member.shape is not None, "a pod that cannot be read leads nobody"
        key = GROUP_LINE + f"{name}:".encode() + member.shape.digest
        return self._of_key(key, shape=member.shape, refusal="")

    def own_of(self, record: ShapeRecord) -> ShapeRecord:
        """The shape's own record, for a pod that stood in the line of its group."""
        if not record.of_group:
            return record
        assert record.shape is not None
        return self.intern(record.shape)

    def take_wanted(self) -> tuple[str, ...]:
        """All label keys that pending pods read, if the Binder was not asked for some of them."""
        if self._readers.keys() <= self._asked:
            return ()
        self._asked.update(self._readers)
        return tuple(sorted(self._readers))

    def all_wanted(self) -> tuple[str, ...]:
        """The same for a Binder that has heard nothing yet; keys that only pods read that are gone
        are not among them, so that they do not count for ever."""
        self._asked = set(self._readers)
        return tuple(sorted(self._readers))

    def hold(self, record: ShapeRecord) -> None:
        """Count one more user of a shape."""
        if record.refs == 0:
            self._idle.pop(record.number, None)
            if record.reads:
                self._readers.update(record.reads)
        record.refs += 1

    def release(self, record: ShapeRecord) -> None:
        """Count one user less; the least recently used idle shapes go beyond the limit."""
        assert record.refs > 0, f"{record!r} has no users"
        record.refs -= 1
        if record.refs:
            return
        for key in record.reads:
            self._readers[key] -= 1
            assert self._readers[key] >= 0, f"label key {key} has fewer than no readers"
            if not self._readers[key]:
                del self._readers[key]
        self._idle[record.number] = record
        if record.mode is Mode.REFUSED:  # whether the next pod is refused is asked anew
            self._drop(record)
        elif len(self._idle) > self._idle_limit:
            self._drop(next(iter(self._idle.values())))

    def _drop(self, record: ShapeRecord) -> None:
        """Forget an idle shape."""
        assert record.refs == 0, f"{record!r} is dropped and used"
        assert not len(record), f"{record!r} is dropped and pods stand in its line"
        del self._idle[record.number]
        del self.by_key[record.key]
        del self.by_number[record.number]
        self.dropped.append(record.number)

    def project(self, record: PodRecord) -> ShapeRecord:
        """The shape that a pod has under the current label keys."""
        shape = record.shape.shape
        if shape is None or shape.label_keys == self.label_keys:
            return record.shape
        return self.projected(shape, record.labels)

    def projected(self, shape: Shape, labels: tuple[tuple[str, str], ...]) -> ShapeRecord:
        """The record of a shape for a pod with these labels under the current label keys."""
        if shape.label_keys != self.label_keys:
            labels = projected(labels, self.label_keys)
            shape = msgspec.structs.replace(shape, labels=labels, label_keys=self.label_keys)
        return self.intern(shape)

    def validate(self, records: Iterable[PodRecord], *, held: Mapping[int, int]) -> None:
        """Check counts and lines against all records, and what groups ``held`` besides."""
        refs: dict[int, int] = dict(held)
        for record in records:
            refs[record.shape.number] = refs.get(record.shape.number, 0) + 1
        for number, shape in self.by_number.items():
            assert shape.refs == refs.get(number, 0), f"{shape!r} has {shape.refs} references"
            assert (number in self._idle) == (shape.refs == 0), f"{shape!r} idle"
            assert self.by_key[shape.key] is shape
            assert all(uid == record.uid for uid, record in shape.line.items())
        assert set(refs) <= set(self.by_number), "a pod has a shape that was dropped"
        used = [shape for shape in self.by_number.values() if shape.refs]
        assert self._readers == Counter(key for shape in used for key in shape.reads)

    def _of_key(self, key: bytes, *, shape: Shape | None, refusal: str) -> ShapeRecord:
        record = self.by_key.get(key)
        return self._new(key=key, shape=shape, refusal=refusal) if record is None else record

    def _new(self, *, key: bytes, shape: Shape | None, refusal: str) -> ShapeRecord:
        unread = False
        if shape is not None and not refusal and shape.reads:
            unread = not shape.reads.issubset(self.label_keys)
        record = ShapeRecord(
            number=self._next, key=key, shape=shape, refusal=refusal, unread=unread
        )
        assert key not in self.by_key, f"{record!r} has a number already"
        self._next += 1
        self.by_key[key] = record
        self.by_number[record.number] = record
        self._idle[record.number] = record
        return record


def projected(
    labels: tuple[tuple[str, str], ...], keys: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The labels whose key is in ``keys``, sorted by key."""
    wanted = frozenset(keys)
    return tuple(sorted(pair for pair in labels if pair[0] in wanted))


def unbuilt_text(names: tuple[str, ...]) -> str:
    """What a pod is told that needs something this release does not build."""
    listed = ", ".join(names)
    return f"the pod has hard constraints that this scheduler does not support yet: {listed}"
