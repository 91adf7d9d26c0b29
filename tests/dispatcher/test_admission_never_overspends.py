"""Random trees, Jobs, pods, faults and restarts: what is used and promised never exceeds a limit,
and every Job is admitted when room comes."""

from __future__ import annotations

import random

import pytest

from dispatcher.job_records import JobResult
from dispatcher.pods import Place
from stretto.model.shape import Shape
from stretto.model.unit import Cause, OutcomeKind
from stretto.quota.rows import QueueRow
from tests.dispatcher.job_field import JobField, limit, members

STEPS = 120


class Controller:
    """Makes the pods of Jobs that run, lets them end, and plays shards and the Binder."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.field = JobField(**self.tree())
        self.size: dict[str, tuple[int, int, Shape]] = {}
        """Job → (parallelism, completions, shape of a member)."""
        self.done: dict[str, int] = {}
        self.made: dict[str, str] = {}
        """Pod that has not ended → its Job, '' for a plain one."""
        self.numbers = 0
        self.begun: set[str] = set()
        self.rough = False
        """Others have resumed Jobs, so that more is promised than there is."""

    def tree(self) -> dict[str, QueueRow]:
        rows: dict[str, QueueRow] = {}
        for number in range(self.rng.randint(1, 2)):
            root = f"r{number}"
            rows[root] = QueueRow(limit=limit(self.rng.randint(6, 12) * 100))
            for child in range(self.rng.randint(1, 3)):
                most = self.rng.choice([(), limit(self.rng.randint(3, 9) * 100)])
                promised = self.rng.choice([(), limit(self.rng.randint(1, 3) * 100)])
                rows[f"{root}c{child}"] = QueueRow(
                    parent=root, limit=most, guaranteed=promised, weight=self.rng.randint(1, 3)
                )
        return rows

    # ------------------------------------------------------------------------------------- actions
    def create_job(self) -> None:
        self.numbers += 1
        uid, queue = f"j{self.numbers}", self.rng.choice(sorted(self.field.queues))
        parallelism, cpu = self.rng.randint(1, 4), self.rng.choice([100, 100, 200])
        completions = parallelism * self.rng.randint(1, 2)
        self.size[uid] = parallelism, completions, members(queue, cpu)
        self.done[uid] = 0
        self.field.job(uid, queue, parallelism, cpu=cpu, priority=self.rng.choice([0, 0, 5]))

    def create_plain(self) -> None:
        self.numbers += 1
        uid, queue = f"plain{self.numbers}", self.rng.choice(sorted(self.field.queues))
        self.made[uid] = ""
        self.field.brain.pod(uid, members(queue, self.rng.choice([100, 200])))

    def make_pods(self) -> None:
        """The Job controller looks at the Jobs that run, as they are in the API."""
        for uid, job in list(self.field.jobs.items()):
            if job.suspended:
                continue
            self.begun.add(uid)
            parallelism, completions, shape = self.size[uid]
            active = sum(owner == uid for owner in self.made.values())
            for _ in range(min(parallelism, completions - self.done[uid]) - active):
                self.numbers += 1
                self.made[f"m{self.numbers}"] = uid
                self.field.pod(f"m{self.numbers}", shape, job=uid)
            self.status(uid)

    def status(self, uid: str) -> None:
        parallelism, completions, _ = self.size[uid]
        active = sum(owner == uid for owner in self.made.values())
        left = completions - self.done[uid]
        job = self.field.jobs[uid]
        if not left:
            self.field.end(uid)
        elif (job.count, job.active) != (min(parallelism, left), active):
            self.field.change(uid, count=min(parallelism, left), active=active)

    def schedule(self) -> None:
        """What is sent is placed, or lost to somebody else."""
        brain = self.field.brain
        brain.machine.shards.credits(1, 64)
        for uid in brain.units():
            record = brain.machine.pods.get(uid)
            assert record is not None
            shape = record.shape.shape
            assert shape is not None
            brain.settle(uid)
            if self.rng.random() < 0.2:
                brain.outcome(uid, OutcomeKind.CONFLICT, cause=Cause.CAPACITY)
                continue
            self.field.step(came={uid: shape})
            if self.rng.random() < 0.5:
                brain.bind(uid)
            brain.delete(uid, leaving=False)

    def end_pod(self, uid: str) -> None:
        """A pod on a node succeeds, or fails and is replaced."""
        owner = self.made.pop(uid)
        self.done[owner] = self.done.get(owner, 0) + (self.rng.random() < 0.8)
        if owner and owner in self.field.jobs:
            self.status(owner)
        self.field.step(left=(uid,))

    def carry_out(self) -> None:
        """Writes are carried out, lost on the way there, or on the way back."""
        field = self.field
        for order in list(field.orders):
            fate = self.rng.random()
            if fate < 0.15:
                field.orders.remove(order)
                field.reply(order, JobResult.UNKNOWN)
            elif fate < 0.9:
                field.carry_out(order, answered=fate > 0.3)

    def suspend(self) -> None:
        """Somebody suspends a Job; its controller takes its pods away."""
        running = [uid for uid, job in self.field.jobs.items() if not job.suspended]
        if not running:
            return
        uid = self.rng.choice(running)
        self.field.change(uid, suspended=True)
        for pod in [pod for pod, owner in self.made.items() if owner == uid]:
            del self.made[pod]
            if pod in self.field.on:
                self.field.step(left=(pod,))
            else:
                self.field.brain.delete(pod, leaving=True)
        self.status(uid)

    def resume(self) -> None:
        """Somebody resumes a Job that waits."""
        waiting = [uid for uid, job in self.field.jobs.items() if job.suspended]
        if waiting:
            self.rough = True
            self.field.change(self.rng.choice(waiting), suspended=False)

    def check_owed(self) -> None:
        """What queues keep for members without a pod is within every limit, and little enough that
        it is said by what Jobs are promised."""
        view, admission = self.field.brain.machine.quota.view, self.field.brain.machine.admission
        sums = dict.fromkeys(self.field.queues, 0)
        for uid, job in admission.jobs.items():
            if job.runs:
                self.add(sums, self.size[uid][2], self.field.amount(uid))
        for node in view.tree:
            owed = view.owed(node).get("cpu", 0)
            assert owed <= sums[node.name]
            used = view.accounts.of(node).used.get("cpu", 0)
            most = max(used - owed, node.limit.get("cpu", used))
            assert used <= most, f"{owed} is kept in {node}, beside {used - owed} of {most}"

    def restart(self) -> None:
        """Another dispatcher begins with what the API and the Binder say."""
        pending = {
            uid: (record.shape.shape, self.made[uid])
            for uid, record in self.field.brain.machine.pods.records.items()
        }
        for uid in list(self.field.jobs):
            self.status(uid)
        self.field.start()
        for uid, (shape, owner) in pending.items():
            self.field.pod(uid, shape, job=owner)
        self.field.brain.shard()

    # -------------------------------------------------------------------------------------- checks
    def check(self) -> None:
        """By the books of the test: on nodes, in flight, and owed to Jobs that run."""
        field, machine = self.field, self.field.brain.machine
        machine.validate()
        sums = dict.fromkeys(field.queues, 0)
        out = {
            uid
            for uid, record in machine.pods.records.items()
            if record.place in (Place.DISPATCHED, Place.OWNED)
        }
        charged = {uid for uid in self.made if uid in field.on or uid in out}
        for uid in charged:
            record = machine.pods.get(uid)
            shape = field.on.get(uid) or (record.shape.shape if record else None)
            assert shape is not None
            self.add(sums, shape, 1)
        for uid, job in field.jobs.items():
            if not job.suspended and not self.rough:
                _, _, shape = self.size[uid]
                mine = sum(self.made[pod] == uid for pod in charged)
                self.add(sums, shape, max(0, job.count - mine))
        for name, row in field.queues.items():
            most = dict(row.limit).get("cpu")
            assert most is None or sums[name] <= most, f"{name}: {sums[name]} of {most}"
        self.check_owed()

    def add(self, sums: dict[str, int], shape: Shape, count: int) -> None:
        each = shape.queue
        while each:
            sums[each] += count * dict(shape.requests)["cpu"]
            each = self.field.queues[each].parent

    def finish(self) -> None:
        """Nothing new comes; everything ends."""
        for _ in range(400):
            self.field.writes(6)
            for order in list(self.field.orders):
                self.field.carry_out(order)
            self.make_pods()
            self.schedule()
            for uid in list(self.field.on):
                self.end_pod(uid)
            self.check()
            hopeless = {
                uid
                for uid, job in self.field.jobs.items()
                if job.told and job.told.reason == "Invalid"
            }
            if not self.field.brain.machine.pods.records and hopeless == self.field.jobs.keys():
                return
        raise AssertionError(f"these never end: {self.field.jobs} {self.made}")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(16))
def test_no_limit_is_ever_exceeded_and_every_job_is_admitted_in_the_end(seed: int) -> None:
    world = Controller(seed)
    world.field.brain.shard()
    for _ in range(STEPS):
        action = world.rng.random()
        if action < 0.15:
            world.create_job()
        elif action < 0.22:
            world.create_plain()
        elif action < 0.45:
            world.field.writes(world.rng.choice([0.3, 2.0]))
        elif action < 0.6:
            world.carry_out()
        elif action < 0.75:
            world.make_pods()
        elif action < 0.88:
            world.schedule()
        elif action < 0.97 and world.field.on:
            world.end_pod(world.rng.choice(sorted(world.field.on)))
        elif action < 0.985:
            world.suspend()
        elif action >= 0.985:
            world.restart()
        world.check()
    world.finish()
    assert world.begun


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(16))
def test_jobs_that_others_resume_end_too_and_no_limit_is_exceeded_by_pods(seed: int) -> None:
    world = Controller(100 + seed)
    world.field.brain.shard()
    actions = (
        world.create_job, world.create_plain, world.carry_out, world.make_pods, world.schedule,
        world.resume, world.resume, world.suspend, world.restart,
    )  # fmt: skip
    for _ in range(STEPS):
        world.rng.choice(actions)()
        world.field.writes(world.rng.choice([0.3, 2.0]))
        if world.field.on and world.rng.random() < 0.3:
            world.end_pod(world.rng.choice(sorted(world.field.on)))
        world.check()
    assert world.rough
    world.finish()
