"""What a shard has to tell the dispatcher, gathered until it is sent, and the credits in it.

The dispatcher may send as many units as were granted. Every answer to a unit grants one more, so
that units held and credits out never exceed the window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from scheduler_shard.shapes import ShapeEntry
from stretto.model.unit import Attempt, Diagnosis, HandBack, Unit, UnitId, Unplaceable, Version
from stretto.rpc.messages import FromShard
from stretto.telemetry.story import StoryLog


class Answers:
    """The message in the making for the current stream to the dispatcher."""

    def __init__(self, *, counts: Counter[str], stories: StoryLog | None) -> None:
        self.granted = 0
        """Credits that the dispatcher has and has not used."""
        self.withholding = False
        """Nothing can be decided: units are handed back, and no more of them are wanted."""
        self._owed = 0
        """Credits that are granted once something can be decided again."""
        self._counts = counts
        self._stories = stories
        self._open = False
        self._message = FromShard()

    def opened(self, *, credits_free: int, draining: bool) -> None:
        """A new stream: only what is free now counts."""
        assert credits_free >= 0, "more is held than the window allows"
        self._message = FromShard(credits=credits_free, draining=draining)
        self.granted = self._owed = 0
        self._open = True

    def closed(self) -> None:
        """The stream has ended; the dispatcher draws its own conclusions."""
        self._open = False
        self._message = FromShard()

    def took(self, units: int) -> None:
        """The dispatcher has used credits."""
        self.granted -= units

    def withhold(self) -> None:
        """Grant no more until :meth:`resume`."""
        self.withholding = True

    def resume(self) -> None:
        """Grant what has gathered meanwhile."""
        self.withholding = False
        assert self._owed >= 0
        self._message.credits += self._owed
        self._owed = 0

    def drain(self) -> None:
        """Say that no more units are wanted."""
        self._message.draining = True

    def settled(self, unit_id: UnitId, attempt: Attempt) -> None:
        """The Binder has given its verdict."""
        self._message.settled.append((unit_id, attempt))
        self._message.credits += 1

    def unplaceable(
        self, entry: ShapeEntry, units: list[Unit], *, diagnosis: Diagnosis, version: Version
    ) -> None:
        """These fit nowhere at this version."""
        message = self._message
        for unit in units:
            message.unplaceable.append(
                Unplaceable(unit.unit_id, unit.attempt, entry.theirs, version, diagnosis)
            )
            self.note(unit.unit_id, unit.attempt, f"unplaceable: {diagnosis.message}")
        message.credits += len(units)
        self._counts["unplaceable"] += len(units)

    def hand_back(self, units: Iterable[Unit], reason: str) -> None:
        """These were not decided on."""
        message = self._message
        for unit in units:
            message.handed_back.append(HandBack(unit.unit_id, unit.attempt, reason))
            message.credits += 1
            self._counts["handed_back"] += 1
            self.note(unit.unit_id, unit.attempt, f"handed back: {reason}")

    def take(self) -> FromShard | None:
        """The message to send now, None if there is nothing to say; it is forgotten here."""
        message = self._message
        if self.withholding:
            self._owed += message.credits
            message.credits = 0
        if not self._open or (self.empty and not (message.credits or message.draining)):
            return None
        assert message.credits >= 0, "credits are taken back"
        assert not self.withholding or message.credits == 0, "credits while nothing can be decided"
        self.granted += message.credits
        self._message = FromShard()
        return message

    @property
    def empty(self) -> bool:
        """Nothing that anybody waits for is unsaid."""
        message = self._message
        return not (message.settled or message.handed_back or message.unplaceable)

    def note(self, unit_id: UnitId, attempt: Attempt, text: str, *values: object) -> None:
        """A line in the story of a unit; ``values`` as in :meth:`StoryLog.note`."""
        if self._stories is not None:
            self._stories.note(unit_id, attempt, text, *values)

    def validate(self, *, held: int, window: int) -> None:
        """Assert that credits and held units keep to the window."""
        if self._open:
            total = self.granted + self._message.credits + self._owed + held
            assert total <= window, f"{total} credits and units exceed the window {window}"
