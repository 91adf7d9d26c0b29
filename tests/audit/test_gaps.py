"""What a gap hides is no violation, and what it cannot hide is one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from stretto.audit.checker import History, check
from stretto.telemetry.logs import JsonFormatter
from tests.audit.story import Story, command
from tests.audit.test_rules import good, two_of_another_gang


def place(story: Story, name: str, node: str, **posted: Any) -> None:
    """Reserve, POST and bind, all but the API's log told."""
    story.reserved(name, node)
    story.act("post", name, node=node, rv=posted.get("rv", story.rv(name)))


def bound_unseen(story: Story) -> None:
    """A pod is created and bound within: the version that its bind replaced is not known."""
    with story.unseen("pods"):
        story.pod("x")
        story.placed("x", "n1")


def changed_and_bound_unseen(story: Story) -> None:
    story.pod("x")
    with story.unseen("pods"):
        story.change("x", touched=True)
        story.placed("x", "n1")


def deleted_unseen(story: Story) -> None:
    """Seven pods leave n2 within and as many come: at no time were there more."""
    for number in range(7):
        story.pod(f"x{number}")
        story.placed(f"x{number}", "n2")
    with story.unseen("pods"):
        for number in range(7):
            story.deleted(f"x{number}")
            story.freed(f"x{number}", "n2")
        for number in range(7):
            story.pod(f"y{number}")
            story.placed(f"y{number}", "n2")
    story.pod("z")
    story.change("z", conditions=[{"type": "PodScheduled", "status": "False", "message": "full"}])


def deleted_unseen_and_room_taken_later(story: Story) -> None:
    for number in range(7):
        story.pod(f"x{number}")
        story.placed(f"x{number}", "n2")
    with story.unseen("pods"):
        story.deleted("x0")
        story.freed("x0", "n2")
    story.pod("y")
    story.placed("y", "n2")


def shrunk_while_unseen(story: Story) -> None:
    """The node had room at the bind, and was made smaller before the list."""
    with story.unseen("pods"):
        story.pod("x")
        story.placed("x", "n1")
        story.node("n1", cpu="200m")


def node_replaced_unseen(story: Story) -> None:
    """The bind went to the node that then had the name."""
    story.pod("x")
    with story.unseen("nodes"):
        story.placed("x", "n1")
        for name in ("a", "c", "x"):
            story.deleted(name)
            story.freed(name, "n1")
        story.node("n1", gone=True)
        node = {"metadata": {"name": "n1", "uid": "u-other"}, "status": {}}
        story.saw("nodes", node, type_="ADDED")


def node_gone_unseen(story: Story) -> None:
    """When it went is not known: the bind may have come in time."""
    story.pod("x")
    with story.unseen("nodes"):
        story.node("n1", gone=True)
        story.now += 6_000_000_000
    place(story, "x", "n1")
    story.bound("x", "n1")
    story.entry_bound("x", "n1")


def refused_beside_a_pod_nobody_saw(story: Story) -> None:
    story.pod("x")
    story.placed("x", "n1")
    with story.unseen("pods"):
        story.change("x", phase="Failed", reason="OutOfcpu")
    story.release("x", "n1")


def leadership_changed_unseen(story: Story) -> None:
    with story.unseen("leases"):
        story.lease("three", 12)
        story.lease("three", 30)


def bound_and_deleting_unseen(story: Story) -> None:
    with story.unseen("pods"):
        story.pod("x")
        story.placed("x", "n1")
        story.pods["x"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        story.saw("pods", story.pods["x"])


def member_came_and_went_unseen(story: Story) -> None:
    """The gang was whole: the ledger held a member that the API's log does not know."""
    story.group("h", 2)
    story.pod("h1", group="h")
    with story.unseen("pods"):
        story.pod("h2", group="h")
        story.reserved("h1", "h2", "n2")
        story.binds("h1", "n2")
        story.binds("h2", "n2")
        story.deleted("h2")
        story.freed("h2", "n2")
    story.pod("h3", group="h")
    story.placed("h3", "n2")


def member_left_unseen(story: Story) -> None:
    two_of_another_gang(story)
    with story.unseen("pods"):
        story.reserved("h1", "h2", "n2")
        story.binds("h1", "n2")
        story.binds("h2", "n2")
        story.deleted("h2")
        story.freed("h2", "n2")


def whole_within_and_seen_late(story: Story) -> None:
    two_of_another_gang(story)
    story.reserved("h1", "h2", "n2")
    story.binds("h1", "n2")
    with story.unseen("pods"):
        story.binds("h2", "n2")
        story.now += 121_000_000_000


HIDDEN: list[Callable[[Story], None]] = [
    bound_unseen,
    changed_and_bound_unseen,
    deleted_unseen,
    deleted_unseen_and_room_taken_later,
    shrunk_while_unseen,
    node_replaced_unseen,
    node_gone_unseen,
    refused_beside_a_pod_nobody_saw,
    leadership_changed_unseen,
    bound_and_deleting_unseen,
    member_came_and_went_unseen,
    member_left_unseen,
    whole_within_and_seen_late,
]


@pytest.mark.parametrize("hidden", HIDDEN, ids=[h.__name__ for h in HIDDEN])
def test_what_a_gap_hides_is_not_known(hidden: Callable[[Story], None]) -> None:
    story = good()
    hidden(story)
    findings = story.check()
    assert findings.violations == []
    assert findings.verdict == "inconclusive"


def test_what_is_not_known_is_counted() -> None:
    story = good()
    changed_and_bound_unseen(story)
    findings = story.check()
    assert findings.unknown == {"I10": 1}
    assert findings.text().splitlines()[0].endswith("not known")


def test_a_bind_whose_version_can_have_been_one_only_is_judged_across_a_gap() -> None:
    story = good()
    bound_unseen(story)
    findings = story.check()
    assert not findings.unknown
    assert findings.checks["I10"] == good().check().checks["I10"] + 2


def other_version_named(story: Story) -> None:
    """No version that the bind can have replaced was named by a POST."""
    story.pod("x")
    place(story, "x", "n1")
    story.change("x", touched=True)
    with story.unseen("pods"):
        story.bound("x", "n1")


def bound_unseen_without_an_entry(story: Story) -> None:
    with story.unseen("pods"):
        story.pod("x")
        story.act("reserved", "x", node="n1", rv=story.rv("x"))
        story.act("post", "x", node="n1", rv=story.rv("x"))
        story.bound("x", "n1")


def moved_unseen(story: Story) -> None:
    with story.unseen("pods"):
        story.bound("a", "n2")


def overcommitted_unseen(story: Story) -> None:
    with story.unseen("pods"):
        for number in range(11):
            story.pod(f"x{number}")
            story.bound(f"x{number}", "n2")


def overcommitted_afterwards(story: Story) -> None:
    with story.unseen("pods"):
        story.pod("x")
        story.placed("x", "n2")
    for number in range(10):
        story.pod(f"x{number}")
        story.bound(f"x{number}", "n2")


def bound_at_another_version_afterwards(story: Story) -> None:
    """The list has shown the pod: what its bind replaced is known again."""
    with story.unseen("pods"):
        story.pod("x")
        story.reserved("x", "n1")
        story.act("post", "x", node="n1", rv=story.rv("x"))
        story.change("x", touched=True)
    story.bound("x", "n1")


def bound_while_deleted_unseen(story: Story) -> None:
    story.pod("x")
    story.pods["x"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    story.saw("pods", story.pods["x"])
    with story.unseen("pods"):
        story.bound("x", "n1")


def epoch_fell_unseen(story: Story) -> None:
    with story.unseen("leases"):
        story.lease("three", 5)


def left_pending(story: Story) -> None:
    with story.unseen("pods"):
        story.pod("x")


def entry_left(story: Story) -> None:
    with story.unseen("pods"):
        story.deleted("a")


def gang_in_part_since_then(story: Story) -> None:
    """It begins when the gap is over."""
    two_of_another_gang(story)
    with story.unseen("pods"):
        story.pod("x")
        story.placed("x", "n1")
    story.reserved("h1", "h2", "n2")
    story.binds("h1", "n2")
    story.now += 121_000_000_000
    story.binds("h2", "n2")


SURE: list[tuple[Callable[[Story], None], str]] = [
    (other_version_named, "I10"),
    (bound_at_another_version_afterwards, "I10"),
    (bound_unseen_without_an_entry, "I2"),
    (moved_unseen, "I2"),
    (overcommitted_unseen, "I1b"),
    (overcommitted_afterwards, "I1b"),
    (bound_while_deleted_unseen, "I19"),
    (epoch_fell_unseen, "I9"),
    (left_pending, "I4"),
    (entry_left, "I24"),
    (gang_in_part_since_then, "R11"),
]


@pytest.mark.parametrize(("breach", "invariant"), SURE, ids=[b.__name__ for b, _ in SURE])
def test_what_a_gap_cannot_hide_is_a_violation(
    breach: Callable[[Story], None], invariant: str
) -> None:
    story = good()
    breach(story)
    findings = story.check()
    assert invariant in {violation.invariant for violation in findings.violations}
    assert findings.verdict == "violated"


def test_what_was_bound_before_the_recording_is_not_judged() -> None:
    """A recorder that comes late: the first list shows binds whose POSTs stand in the Binder's
    log."""
    story = good()
    now = {kind: story.existing(kind) for kind in ("nodes", "pods", "leases", "podgroups")}
    story.api = [
        line
        for kind, objects in now.items()
        for line in (
            {"kind": kind, "type": "LISTED", "until": story.version},
            *({"kind": kind, "type": "ADDED", "object": o} for o in objects.values()),
        )
    ]
    story.pod("x")
    story.placed("x", "n1")
    findings = story.check()
    assert findings.violations == []
    assert findings.notes["binds before the recording began"] == 5
    assert set(findings.unknown) == {"I6"}, "the ledger tells of a gang's member that was gone"


def recorded_again(story: Story) -> None:
    """The recorder was started anew, with the same file."""
    for kind in ("nodes", "pods", "leases", "podgroups"):
        objects = story.existing(kind).values()
        story.api += [
            {"t": story.now, "kind": kind, "type": "LISTED", "until": story.version},
            *({"t": story.now, "kind": kind, "type": "ADDED", "object": o} for o in objects),
        ]


def test_a_further_recording_hides_nothing_that_the_one_before_has_told() -> None:
    story = good()
    before = story.check()
    recorded_again(story)
    again = story.check()
    assert again.verdict == before.verdict == "held"
    assert again.notes["binds before the recording began"] == 0
    assert again.checks["I10"] == before.checks["I10"]


def test_what_the_list_of_a_further_recording_does_not_show_is_gone() -> None:
    story = good()
    full = [f"x{number}" for number in range(7)]
    for name in full:
        story.pod(name)
        story.placed(name, "n2")
    told = len(story.api)
    story.deleted("x0")
    story.freed("x0", "n2")
    del story.api[told:]  # nobody watched
    gone = story.existing("pods")
    del gone["u-x0"]
    story.version += 1
    story.api += [
        {"t": story.now, "kind": "pods", "type": "LISTED", "until": story.version},
        *({"t": story.now, "kind": "pods", "type": "ADDED", "object": o} for o in gone.values()),
    ]
    story.pod("y")
    story.placed("y", "n2")
    findings = story.check()
    assert findings.violations == [], "x0 has left the room that y takes"


def test_a_line_that_cannot_be_read_may_have_been_any_change() -> None:
    """Until the end it is not known what exists."""
    story = good()
    full = [f"x{number}" for number in range(7)]
    for name in full:
        story.pod(name)
        story.placed(name, "n2")
    story.deleted("x0")
    story.freed("x0", "n2")
    lost = len(story.api) - 1
    story.pod("y")
    story.placed("y", "n2")
    history = story.history()
    lines = history.api.splitlines()
    lines[lost] = lines[lost][:20]
    findings = check(History(b"\n".join(lines), history.audit, history.ledger, history.owner))
    assert findings.violations == []
    assert findings.verdict == "inconclusive"


def test_acts_are_read_among_the_lines_of_a_container_s_log() -> None:
    history = good().history()
    assert history.audit is not None
    record = logging.LogRecord("binder", logging.INFO, "", 0, 'an "act" of %s', ("ours",), None)
    log = JsonFormatter().format(record).encode()
    among = b"\n".join(line for act in history.audit.splitlines() for line in (log, act))
    findings = check(History(history.api, among, history.ledger, history.owner))
    assert findings.verdict == "held"
    assert findings.text() == check(history).text(), "as without them"


@pytest.mark.parametrize("act", ["open", "reserved", "fenced", "post", "answer"])
def test_an_act_that_cannot_be_read_excuses_what_comes_after_it(act: str) -> None:
    story = good()
    history = story.history()
    assert history.audit is not None
    lines = history.audit.splitlines()
    lost = next(i for i, line in enumerate(lines) if f'"act":"{act}"'.encode() in line)
    lines[lost] = lines[lost][:9]
    findings = check(History(history.api, b"\n".join(lines), history.ledger, history.owner))
    assert findings.violations == []
    assert findings.verdict == "inconclusive"


def test_a_breach_before_an_act_that_cannot_be_read_is_one() -> None:
    story = good()
    story.act("post", "waits", node="n1", rv=story.rv("waits"))
    story.acts.append({"act": 1})
    assert "I2" in story.broken()


def test_a_ledger_without_its_beginning_is_not_judged() -> None:
    story = good()
    history = story.history()
    half = story.ledger[story.ledger.index(command("MULTI"), len(story.ledger) // 2) :]
    findings = check(
        History(history.api, history.audit, half, history.owner, "the ledger's file was rewritten")
    )
    assert findings.violations == []
    assert findings.verdict == "inconclusive"
    assert findings.checks["I10"], "binds and POSTs are held against each other all the same"


def test_a_ledger_without_its_end_says_nothing_of_the_end() -> None:
    story = good()
    story.pod("x")
    story.placed("x", "n1")
    story.ledger = story.ledger[:-3]
    findings = story.check()
    assert findings.violations == []
    assert findings.unknown["I8"] == 1
    assert findings.verdict == "inconclusive"
