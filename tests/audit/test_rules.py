"""Each invariant of the history checker: a good history passes, one with that breach does not."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from stretto.audit.checker import History, check
from tests.audit.story import Story, command, key

TOLD = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]


def good() -> Story:
    """A Binder places three pods; one waits, one ends; a successor fences and goes on."""
    story = Story()
    story.lease("one", 0)
    story.opened()
    story.lease("one", 7)
    for name in ("a", "b", "c", "d", "waits"):
        story.pod(name)
    story.placed("a", "n1")
    story.placed("b", "n1")
    story.change("waits", conditions=TOLD)
    story.deleted("b")
    story.freed("b", "n1")
    story.reserved("c", "n2")
    story.act("post", "c", node="n2", rv=story.rv("c"))
    story.reserved("d", "n2")
    # The Binder dies; the bind of c never arrives, that of d was not sent.
    story.install(12)
    story.lease("two", 7)
    story.lease("two", 12)
    for name in ("c", "d"):
        story.change(name, fenced=True)
        story.act("fenced", name)
        story.release(name, "n2")
    story.act("open")
    story.placed("c", "n1")
    story.placed("d", "n2")
    gang(story)
    return story


def gang(story: Story) -> None:
    """Of a gang of two both are placed, one ends, and another takes its place."""
    story.group("g", 2)
    for name in ("g1", "g2", "g3"):
        story.pod(name, group="g")
    story.reserved("g1", "g2", "n2")
    story.binds("g1", "n2")
    story.binds("g2", "n2")
    story.deleted("g2")
    story.freed("g2", "n2")
    story.placed("g3", "n2")


def test_a_good_history_holds_and_says_what_it_has_looked_at() -> None:
    findings = good().check()
    assert findings.violations == []
    assert findings.verdict == "held"
    looked_at = {
        "I1a", "I1b", "I2", "I4", "I6", "I9", "I10", "I11", "I12", "I13", "I18", "I20", "I24",
        "R11",
    }  # fmt: skip
    assert looked_at <= {name for name, count in findings.checks.items() if count}
    assert findings.text().endswith("held")


def overcommitted(story: Story) -> None:
    for number in range(11):
        story.pod(f"x{number}")
        story.bound(f"x{number}", "n2")


def moved(story: Story) -> None:
    story.bound("a", "n2")


def bound_while_deleted(story: Story) -> None:
    story.pod("x")
    story.pods["x"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    story.saw("pods", story.pods["x"])
    story.bound("x", "n1")


def refused_by_the_kubelet(story: Story) -> None:
    story.change("a", phase="Failed", reason="OutOfcpu")


def never_told(story: Story) -> None:
    story.pod("x")


def epoch_of_the_lease_falls(story: Story) -> None:
    story.lease("two", 7)


def epoch_announced_by_a_stranger(story: Story) -> None:
    story.lease("three", 30)


def another_epoch_than_ones_own_is_announced_with_the_release(story: Story) -> None:
    story.lease("three", 12)
    story.lease("", story.version + 1)


def ledger_epoch_falls(story: Story) -> None:
    story.install(5)


def reserved_under_an_old_epoch(story: Story) -> None:
    story.pod("x")
    now, story.epoch = story.epoch, 3
    record = story.record("x", "n1")
    story.epoch = now
    story.use("n1", 1)
    story.step(
        story.account("n1"),
        command("HSET", key("units"), "u-x", b"\x92\x01\x01"),
        command("HSET", key("open"), "u-x", record),
    )


def a_call_is_missing(story: Story) -> None:
    story.sequence += 1
    story.step(story.account("n1"))


def sums_do_not_agree(story: Story) -> None:
    story.used["u-n1"][0] += 1
    story.step(story.account("n1"))


def reserved_beyond_the_room(story: Story) -> None:
    story.pod("x")
    story.use("n1", 1)
    story.step(
        story.account("n1", cpu=200),
        command("HSET", key("units"), "u-x", b"\x92\x01\x01"),
        command("HSET", key("open"), "u-x", story.record("x", "n1")),
    )


def charged(story: Story, *, room: int, used: int) -> None:
    """A pod is reserved and charged one of a volume, whose account is written with it."""
    story.pod("x")
    story.use("n1", 1)
    account = command("HSET", key("accounts"), "volume v", struct.pack("<5d", 0, 2, room, used, 0))
    story.step(
        story.account("n1"),
        account,
        command("HSET", key("units"), "u-x", b"\x92\x01\x01"),
        command("HSET", key("open"), "u-x", story.record("x", "n1", charges=["volume v", 2, 1])),
    )


def charged_beyond_what_there_is(story: Story) -> None:
    charged(story, room=0, used=1)


def charged_and_not_counted(story: Story) -> None:
    charged(story, room=1, used=0)


def reserved_on_a_frozen_node(story: Story) -> None:
    story.pod("x")
    story.use("n1", 1)
    story.step(
        story.account("n1", flags=1),
        command("HSET", key("units"), "u-x", b"\x92\x01\x01"),
        command("HSET", key("open"), "u-x", story.record("x", "n1")),
    )


def reserved_twice_in_the_ledger(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.use("n1", -1)
    story.reserved("x", "n2", act=False)


def reserved_twice_by_the_binder(story: Story) -> None:
    story.act("reserved", "d", node="n2", rv=5)


def reserved_before_it_was_open(story: Story) -> None:
    story.epoch = 40
    story.pod("x")
    story.act("reserved", "x", node="n1", rv=story.rv("x"))


def reserved_while_the_ledger_was_lost(story: Story) -> None:
    story.act("lost", cause="gap")
    story.pod("x")
    story.placed("x", "n1")


def posted_without_a_reservation(story: Story) -> None:
    story.act("post", "waits", node="n1", rv=story.rv("waits"))


def posted_with_a_version_of_its_own(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.change("x", touched=True)
    story.act("post", "x", node="n1", rv=story.rv("x"))


def posted_without_a_version(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.act("post", "x", node="n1", rv=0)
    story.bound("x", "n1")


def bound_at_another_version(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.change("x", touched=True)
    story.bound("x", "n1")


def bound_without_an_entry(story: Story) -> None:
    story.pod("x")
    story.act("reserved", "x", node="n1", rv=story.rv("x"))
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.bound("x", "n1")


def freed_while_a_bind_is_in_flight(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.freed("x", "n1", cause="failed")


def freed_after_an_unknown_answer(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.act("answer", "x", cause="unknown")
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.act("answer", "x", cause="throttled")
    story.freed("x", "n1", cause="failed")


def a_successor_frees_without_a_fence(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")
    story.install(50)
    story.release("x", "n1")


def bound_to_a_node_long_gone(story: Story) -> None:
    story.pod("x")
    story.node("n1", gone=True)
    story.reserved("x", "n1")
    story.now += 6_000_000_000
    story.act("post", "x", node="n1", rv=story.rv("x"))
    story.bound("x", "n1")


def an_entry_stays_open(story: Story) -> None:
    story.pod("x")
    story.reserved("x", "n1")


def an_entry_outlives_its_pod(story: Story) -> None:
    story.deleted("a")


def a_bound_pod_has_no_entry(story: Story) -> None:
    story.release("a", "n1")


def an_entry_names_another_node(story: Story) -> None:
    story.use("n1", -1)
    story.use("n2", 1)
    record = story.record("a", "n2", state=3)
    story.step(
        story.account("n1"), story.account("n2"), command("HSET", key("bound"), "u-a", record)
    )


def two_of_another_gang(story: Story) -> None:
    story.group("h", 2)
    for name in ("h1", "h2"):
        story.pod(name, group="h")


def a_gang_is_reserved_in_part(story: Story) -> None:
    two_of_another_gang(story)
    story.placed("h1", "n2")
    story.placed("h2", "n2")


def a_gang_is_bound_in_part_for_long(story: Story) -> None:
    two_of_another_gang(story)
    story.reserved("h1", "h2", "n2")
    story.binds("h1", "n2")
    story.now += 121_000_000_000
    story.binds("h2", "n2")


def a_gang_stays_bound_in_part(story: Story) -> None:
    two_of_another_gang(story)
    story.reserved("h1", "h2", "n2")
    story.binds("h1", "n2")
    story.freed("h2", "n2", cause="failed")
    story.change("h2", conditions=TOLD)


BREACHES: list[tuple[Callable[[Story], None], str]] = [
    (overcommitted, "I1b"),
    (moved, "I2"),
    (bound_while_deleted, "I19"),
    (refused_by_the_kubelet, "R16"),
    (never_told, "I4"),
    (epoch_of_the_lease_falls, "I9"),
    (epoch_announced_by_a_stranger, "I9"),
    (another_epoch_than_ones_own_is_announced_with_the_release, "I9"),
    (ledger_epoch_falls, "I9"),
    (reserved_under_an_old_epoch, "I9"),
    (a_call_is_missing, "I12"),
    (reserved_while_the_ledger_was_lost, "I12"),
    (sums_do_not_agree, "I1a"),
    (reserved_beyond_the_room, "I1a"),
    (charged_beyond_what_there_is, "I1a"),
    (charged_and_not_counted, "I1a"),
    (reserved_on_a_frozen_node, "I20"),
    (bound_to_a_node_long_gone, "I20"),
    (reserved_twice_in_the_ledger, "I18"),
    (reserved_twice_by_the_binder, "I18"),
    (reserved_before_it_was_open, "I13"),
    (posted_without_a_reservation, "I2"),
    (bound_without_an_entry, "I2"),
    (posted_with_a_version_of_its_own, "I10"),
    (posted_without_a_version, "I10"),
    (bound_at_another_version, "I10"),
    (freed_while_a_bind_is_in_flight, "I11"),
    (freed_after_an_unknown_answer, "I11"),
    (a_successor_frees_without_a_fence, "I11"),
    (a_gang_is_reserved_in_part, "I6"),
    (a_gang_is_bound_in_part_for_long, "R11"),
    (a_gang_stays_bound_in_part, "R11"),
    (an_entry_stays_open, "I8"),
    (an_entry_outlives_its_pod, "I24"),
    (a_bound_pod_has_no_entry, "I24"),
    (an_entry_names_another_node, "I24"),
]


@pytest.mark.parametrize(("breach", "invariant"), BREACHES, ids=[b.__name__ for b, _ in BREACHES])
def test_a_breach_is_found(breach: Callable[[Story], None], invariant: str) -> None:
    story = good()
    breach(story)
    findings = story.check()
    assert invariant in {violation.invariant for violation in findings.violations}
    assert findings.verdict == "violated"


def test_binds_of_other_schedulers_are_counted_and_share_the_node() -> None:
    story = good()
    for number in range(11):
        story.pod(f"theirs-{number}", scheduler="other")
        story.bound(f"theirs-{number}", "n2")
    findings = story.check()
    assert findings.violations == []
    assert findings.notes["binds of other schedulers' pods"] == 11


def test_what_is_under_way_is_no_breach_unless_at_rest() -> None:
    story = good()
    story.pod("x")
    story.reserved("x", "n1")
    assert story.broken(at_rest=False) == {}
    assert set(story.broken()) == {"I4", "I8"}


def test_a_holder_may_announce_its_epoch_with_its_release() -> None:
    """It ended before its first renewal, with which it would have done so."""
    story = good()
    story.lease("three", 12)
    story.lease("", story.version)
    assert story.check().verdict == "held"


def test_a_history_with_a_gap_proves_nothing() -> None:
    story = good()
    story.api.insert(3, {"gap": "watch of pods: too old"})
    assert story.check().verdict == "inconclusive"
    cut = good()
    cut.ledger = cut.ledger[:-3]
    assert cut.check(at_rest=False).verdict == "inconclusive"
    assert check(History(b"")).verdict == "inconclusive"


def test_an_emptied_ledger_begins_anew() -> None:
    story = good()
    story.ledger += command("FLUSHALL")
    for used in story.used.values():
        used[:] = [0, 0]
    story.install(12, generation="h")
    for name, node in (("a", "n1"), ("c", "n1"), ("d", "n2"), ("g1", "n2"), ("g3", "n2")):
        story.use(node, 1)
        story.step(
            story.account(node),
            command("HSET", key("bound"), f"u-{name}", story.record(name, node, state=3)),
        )
    assert story.broken() == {}


def test_processes_of_one_deployment_share_the_lease_of_its_name() -> None:
    story = good()
    for epoch in (0, 39, 35, 39):
        story.lease("kube-system/stretto-dispatcher", epoch, name="stretto-serves-stretto")
    findings = story.check()
    assert not findings.violations
    assert findings.verdict == "held"
