"""Jobs in the queue before their pods exist: who is resumed when, and what is promised."""

from __future__ import annotations

import pytest

from stretto.model.jobs import Template
from stretto.model.unit import Cause, OutcomeKind
from stretto.quota.rows import QueueRow
from tests.dispatcher.brain import shape
from tests.dispatcher.job_field import JobField, limit, members


def test_a_job_is_resumed_when_there_is_room_for_all_of_it_and_the_next_when_that_ends() -> None:
    field = JobField(a=QueueRow(limit=limit(500)))
    field.job("first", "a", 4)
    field.job("second", "a", 4)
    assert field.resumed() == ["first"]
    assert field.told("first") == ("True", "Admitted", "")
    assert field.told("second") == (
        "False", "WaitingForQuota", "waiting for quota: queue a is at its limit of cpu",
    )  # fmt: skip
    assert field.writes(60) == [], "nothing has changed, so nothing is written"
    field.end("first")
    assert field.resumed() == ["second"]


def test_a_promise_keeps_others_out_and_becomes_the_charges_of_the_pods() -> None:
    field = JobField(a=QueueRow(limit=limit(500)))
    field.job("j", "a", 4)
    field.resumed()
    brain = field.brain
    brain.shard()
    brain.pods(3, shape(queue="a"), prefix="plain")
    assert brain.units() == ["plain0"], "four of five are promised"
    for number in range(4):
        field.pod(f"m{number}", members("a"), job="j")
    came = {f"m{number}": members("a") for number in range(4)}
    assert brain.units() == ["m0"], "first of a line that stands, as a probe"
    place(field, "m0", "plain0")
    assert sorted(brain.units()) == ["m1", "m2", "m3"], "and none of those before them"
    assert field.amount("j") == 0
    place(field, "m1", "m2", "m3")
    assert field.amount("j") == 0
    assert set(came) < field.on.keys()
    field.step(left=("m0",))
    assert field.amount("j") == 1, "a pod that ends gives its room back to its Job"
    brain.wait(11)
    assert brain.units() == []
    field.change("j", count=3, active=3)
    assert field.amount("j") == 0, "the Job needs it no more"
    brain.dispatch()
    brain.wait(11)
    assert brain.units() == ["plain1"]


def test_a_member_that_loses_its_reservation_is_promised_its_room_again_at_once() -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("j", "a", 1)
    field.resumed()
    field.brain.shard()
    field.pod("m", members("a"), job="j")
    assert field.brain.units() == ["m"]
    field.brain.settle("m")
    field.step(came={"m": members("a")})
    assert field.amount("j") == 0
    field.step(left=("m",))
    assert field.amount("j") == 1, "its outcome is still to come"
    field.job("k", "a", 1)
    assert field.resumed() == []
    field.brain.outcome("m", OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
    assert field.amount("j") == 1
    assert field.brain.units() == ["m"]
    assert field.amount("j") == 0


@pytest.mark.parametrize("most", [200, 500])
def test_promises_above_a_limit_do_not_keep_out_the_pods_that_they_are_for(most: int) -> None:
    """Others have resumed the Jobs, or a limit was lowered: more is promised than there is."""
    field = JobField(a=QueueRow(limit=limit(most)))
    for job in ("j", "k"):
        field.job(job, "a", 4, suspended=False, was_suspended=True)
        for number in range(4):
            field.pod(f"{job}{number}", members("a"), job=job)
    field.brain.shard()
    running: set[str] = set()
    for _ in range(8):
        sent = field.brain.units()
        place(field, *sent)
        running.update(sent)
        field.brain.wait(11)
    assert len(running) == most // 100, "up to the limit, and not above it"


def test_what_a_queue_cannot_use_of_its_promises_keeps_out_nobody_beside_it() -> None:
    field = JobField(org=QueueRow(limit=limit(400)), a=QueueRow(parent="org", limit=limit(100)),
                     b=QueueRow(uid="b", parent="org"))  # fmt: skip
    field.job("others", "a", 9, suspended=False, was_suspended=True)
    field.job("ours", "b", 3)
    assert field.resumed() == ["ours"], "one of the nine has room, and three are left"
    field.job("more", "b", 1)
    assert field.resumed() == []
    field.queue("a", QueueRow(parent="org"))
    field.brain.pod("plain", members("b"))
    field.brain.shard()
    assert field.brain.units() == []


def test_room_is_not_kept_for_ever_for_pods_that_nobody_makes() -> None:
    field = JobField(a=QueueRow(limit=limit(400)))
    field.brain.shard()
    field.job("j", "a", 4)
    assert field.resumed() == ["j"]
    field.writes(200)
    field.pod("m0", members("a"), job="j")
    assert field.brain.units() == ["m0"]
    place(field, "m0")
    field.job("next", "a", 3)
    for _ in range(65):
        field.brain.wait(9)
        assert field.resumed(rounds=1) == [], "a pod of it has come"
    field.brain.wait(20)
    assert field.resumed() == ["next"]
    assert (field.amount("j"), field.amount("next")) == (0, 3)
    told = field.told("j")
    assert told is not None
    assert (told.status, told.reason) == ("True", "PodsMissing")
    assert "660 s" in told.message
    field.pod("m1", members("a"), job="j")
    assert field.brain.units() == [], "it waits as one that was promised nothing"
    field.end("next")
    field.brain.wait(11)
    assert field.brain.units() == ["m1"]
    place(field, "m1")
    field.step(left=("m1",))
    assert field.amount("j") == 1, "who had room and loses it has it again"
    for uid in ("m2", "m3", "m4"):
        field.pod(uid, members("a"), job="j")
    sent = field.brain.units()
    assert sent == ["m2", "m3", "m4"]
    place(field, *sent)
    field.writes(10)
    for order in list(field.orders):
        field.carry_out(order)
    assert field.told("j") == ("True", "Admitted", "")
    assert field.writes(1000) == []


def test_a_job_that_is_suspended_and_resumed_has_its_whole_time_again() -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("j", "a", 1)
    assert field.resumed() == ["j"]
    field.writes(650)
    field.change("j", suspended=True)
    assert field.resumed() == ["j"]
    for _ in range(64):
        field.writes(10)
    assert field.amount("j") == 1
    for _ in range(3):
        field.writes(10)
    assert field.amount("j") == 0


def test_a_pod_elsewhere_that_names_a_job_is_not_its_pod() -> None:
    field = JobField(a=QueueRow(limit=limit(200)))
    field.brain.shard()
    field.job("j", "a", 2)
    assert field.resumed() == ["j"]
    field.pod("stranger", members("b"), job="j", namespace="elsewhere")
    assert field.amount("j") == 2
    field.pod("claims", members("a"), job="j", namespace="elsewhere")
    assert "claims" not in field.brain.units()


def test_what_was_created_running_is_told_so_and_jumps_no_queue() -> None:
    field = JobField(a=QueueRow(limit=limit(200)))
    field.brain.shard()
    field.job("running", "a", 2, suspended=False)
    field.brain.pod("plain", members("a"))
    assert field.brain.units() == ["plain"], "nothing is promised to who did not wait"
    field.job("waits", "a", 1)
    assert field.resumed() == ["waits"]
    told = field.told("running")
    assert told is not None
    assert (told.status, told.reason) == ("False", "NotSuspended")
    assert field.writes(60) == []
    field.start()
    assert (field.amount("running"), field.amount("waits")) == (0, 1), "it follows from the API"
    field.change("running", suspended=True)
    field.change("running", suspended=False)
    assert field.amount("running") == 2


def test_what_no_limit_allows_is_told_so_wherever_it_stands() -> None:
    field = JobField(org=QueueRow(limit=limit(300)), a=QueueRow(parent="org"))
    field.job("holds", "org", 2)
    field.job("large", "org", 2, priority=9)
    field.job("first", "a", 2, priority=1)
    field.resumed()
    field.job("never", "a", 4)
    field.resumed()
    told = field.told("never")
    assert told is not None
    assert (told.reason, "than the limit of queue org" in told.message) == ("Invalid", True)
    field.queue("org", QueueRow(limit=limit(500)))
    field.resumed()
    told = field.told("never")
    assert told is not None
    assert told.reason == "WaitingForQuota"


def test_a_look_at_many_plain_pods_does_not_walk_them(monkeypatch: pytest.MonkeyPatch) -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("j", "a", 1)
    assert field.resumed() == ["j"]
    field.brain.pods(50, members("a"))
    field.pod("m", members("a"), job="j")
    walked: list[str] = []

    def has(uid: str) -> bool:
        walked.append(uid)
        return uid == "m"

    monkeypatch.setattr(field.brain.machine.quota.promises, "has", has)
    line = next(iter(field.brain.machine.shapes.by_number.values()))
    assert field.brain.machine.quota.unpromised_in(line) == 50
    assert walked == ["m"]


def place(field: JobField, *uids: str) -> None:
    """Units are committed and bound."""
    field.brain.settle(*uids)
    field.step(came={uid: members("a") for uid in uids})
    field.brain.bind(*uids)
    for uid in uids:
        field.brain.delete(uid, leaving=False)


def test_a_dispatcher_that_starts_knows_what_is_promised_from_the_api_alone() -> None:
    field = JobField(a=QueueRow(limit=limit(500)))
    field.job("j", "a", 4)
    field.resumed()
    field.step(came={"m0": members("a"), "m1": members("a")})
    field.change("j", active=3)
    field.start()
    field.pod("m2", members("a"), job="j")
    assert field.amount("j") == 2, "one member waits and one has no pod; two are on nodes"
    field.job("late", "a", 2)
    assert field.resumed() == [], "three of five are taken by j's promise and pods, one by nobody"
    field.job("small", "a", 1)
    assert field.resumed() == [], "late stands before it"
    field.end("late")
    assert field.resumed() == ["small"]


def test_the_room_of_a_pod_that_ends_after_a_restart_is_its_job_s_before_the_job_says_so() -> None:
    field = JobField(a=QueueRow(limit=limit(300)))
    field.job("j", "a", 3)
    field.resumed()
    field.step(came={"m0": members("a"), "m1": members("a")})
    field.change("j", active=3)
    field.start()
    field.pod("m2", members("a"), job="j")
    field.brain.delete("m2", leaving=True)
    field.job("k", "a", 1)
    assert (field.amount("j"), field.resumed()) == (1, []), "by its status it has three pods yet"
    for active in (2, 3):
        field.change("j", active=active)
        assert field.amount("j") == 1
        field.pod("m3", members("a"), job="j")


def test_a_job_that_is_suspended_again_gives_its_promise_back_and_waits_again() -> None:
    field = JobField(a=QueueRow(limit=limit(200)))
    field.job("j", "a", 2)
    field.resumed()
    field.job("k", "a", 2)
    assert field.resumed() == []
    field.change("j", suspended=True)
    assert field.resumed() == ["j"], "it is the older one, and it still asks for admission"
    field.end("j")
    assert field.resumed() == ["k"]


def test_a_large_job_is_not_overtaken_for_what_it_waits_for_and_others_go_on() -> None:
    field = JobField(a=QueueRow(limit=(("cpu", 300), ("gpu", 4))), b=QueueRow(limit=limit(100)))
    field.step(came={"old": members("a", 200)})
    field.job("large", "a", 2)
    field.job("small", "a", 1)
    field.job("elsewhere", "b", 1)
    gpu = members("a").__class__(profile="stretto", namespace="default", queue="a",
                                 requests=(("gpu", 1),))  # fmt: skip
    field.job("gpu", template=Template(shape=gpu))
    assert sorted(field.resumed()) == ["elsewhere", "gpu"]
    told = field.told("small")
    assert told is not None
    assert told.message == "waiting for quota: queue a is at its limit of cpu"
    field.step(left=("old",))
    assert field.resumed() == ["large", "small"]


def test_priority_then_age_in_a_queue_and_the_smallest_share_between_queues() -> None:
    field = JobField(org=QueueRow(limit=limit(300)), a=QueueRow(parent="org"),
                     b=QueueRow(parent="org"))  # fmt: skip
    field.step(came={"old": members("b", 300)})
    for uid, queue, priority in (("a0", "a", 0), ("b0", "b", 9), ("a1", "a", 5), ("a2", "a", 5)):
        field.job(uid, queue, 1, priority=priority)
    assert field.resumed() == []
    field.step(left=("old",))
    assert field.resumed() == ["a1", "b0", "a2"]


def test_pods_that_wait_in_the_queue_come_before_jobs_of_their_priority() -> None:
    field = JobField(a=QueueRow(limit=limit(300)))
    field.step(came={"old": members("a", 300)})
    brain = field.brain
    brain.shard()
    brain.pods(2, shape(queue="a"))
    assert brain.units() == []
    field.job("j", "a", 2)
    field.job("urgent", "a", 1, priority=5)
    field.step(left=("old",))
    assert field.resumed(rounds=1) == ["urgent"], "the rest is the pods'"
    brain.wait(11)
    assert set(brain.units()) == {"p0"}


def test_a_guaranteed_job_is_resumed_where_borrowers_may_be_made_to_leave() -> None:
    field = JobField(org=QueueRow(limit=limit(400)), b=QueueRow(parent="org"),
                     a=QueueRow(parent="org", guaranteed=limit(200)))  # fmt: skip
    field.step(came={"old": members("b", 400)})
    field.job("j", "a", 2)
    field.job("more", "a", 3)
    assert field.resumed() == [], "the borrowers are too young"
    from stretto.quota.rows import USAGE, UsageRow, encode_quota
    from stretto.snapshot.delta import ObjectRow

    aged = encode_quota(UsageRow(used=limit(400), aged=1))
    field.tell(*(ObjectRow(USAGE, name, payload=aged) for name in ("org", "b")))
    assert field.resumed() == ["j"], "the other would borrow"


@pytest.mark.parametrize("served", [True, False])
def test_a_job_in_no_queue_is_resumed_at_once(served: bool) -> None:
    field = JobField(served=served)
    field.job("j", "" if served else "unknown", 10_000)
    assert field.resumed() == ["j"]


def test_what_is_wrong_is_said_once_and_nothing_hangs() -> None:
    field = JobField(a=QueueRow(limit=limit(300)))
    field.job("bad", problem="spec.parallelism is 0: there is nothing to admit")
    field.job("torn", template=Template(problem="spec.template cannot be read: no"))
    field.job("classless", template=Template(shape=members("a"), priority_class="gone"))
    field.job("lost", "nowhere", 1)
    field.job("good", "a", 1)
    field.brain.machine.admission.classes({"other": 7})
    assert field.resumed() == ["good"]
    said = {uid: told.message for uid in field.jobs if (told := field.told(uid))}
    assert said == {
        "bad": "spec.parallelism is 0: there is nothing to admit",
        "torn": "spec.template cannot be read: no",
        "classless": "spec.template names a PriorityClass gone, which does not exist",
        "lost": 'queue "nowhere", which the pod names, does not exist',
        "good": "",
    }
    field.brain.machine.admission.classes({"gone": 7})
    assert field.resumed() == ["classless"]
    field.queue("nowhere", QueueRow())
    assert field.resumed() == ["lost"]
    assert field.writes(60) == []


def test_nothing_is_decided_before_all_is_known() -> None:
    field = JobField(a=QueueRow(limit=limit(100)))
    field.job("running", "a", 1, suspended=False, was_suspended=True)
    field.job("j", "a", 1)
    field.brain.machine.quota.read = False
    assert field.writes() == []
    field.brain.machine.quota.read = True
    assert field.resumed() == [], "what runs is promised its room, who ever resumed it"


def test_members_count_as_waiting_in_their_queue_and_above_and_the_status_says_why() -> None:
    field = JobField(org=QueueRow(uid="o", limit=limit(300)), a=QueueRow(uid="q", parent="org"))
    field.job("first", "a", 3)
    field.job("second", "a", 2)
    field.resumed()
    field.pod("m0", members("a"), job="first")
    field.brain.now += 10
    status = {o.name: o.status for o in field.brain.machine.queue_patches(field.brain.now)}
    assert status["a"].waiting == status["org"].waiting == 5, "one pod, two to come, two suspended"
    assert status["a"].promised == {"cpu": "300m", "pods": "3"}
    assert status["a"].why == "waiting for quota: queue org above queue a is at its limit of cpu"
    assert field.brain.machine.admission.counts() == {
        "waiting": (1, 2), "invalid": (0, 0), "admitted": (1, 3), "unadmitted": (0, 0),
    }  # fmt: skip


def test_the_template_changes_while_it_waits() -> None:
    field = JobField(a=QueueRow(limit=limit(300)))
    field.job("j", "a", 4)
    assert field.resumed() == []
    field.templates["j"] = Template(shape=members("a", 50))
    field.change("j", generation=2)
    assert field.resumed() == ["j"]
