"""Faults that somebody might make by hand, and the tests that must notice each of them.

A mutant replaces one piece of text that occurs exactly once in its file (a test sees to that), so
that code which moves takes its mutant along or says so.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One fault."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """What is run against it; the first failure is what kills it."""

    def change(self, text: str) -> str:
        """The file with the fault in it."""
        assert text.count(self.old) == 1, f"{self.name}: {self.file} has changed"
        return text.replace(self.old, self.new)


LOSSES = "tests/ledger/test_losses.py"
RESERVE = "tests/ledger/test_reserve.py"
FIT = "sum + account[at + 3] > account[at + 1] then"
EQUAL = "tests/ledger/test_script_equals_twin.py"
BINDS = "tests/binder/test_binds.py"
OPENING = "tests/binder/test_opening.py"
LOOP = "tests/binder/test_commit_loop.py"
COMMITS = "tests/binder/test_commits.py"
DEVICES = "tests/binder/test_device_claims.py"
CLAIMS = "tests/binder/test_claims.py"
PREEMPTIONS = "tests/binder/test_preemptions.py"
GANG_CLAIMS = "tests/binder/test_gang_claims.py"
GANGS_PREEMPT = "tests/placement/test_gang_preemption.py"
EVICTOR = "tests/binder/test_evictor.py"
CALLERS = "tests/rpc/test_callers.py"
GUARD = "tests/telemetry/test_guard.py"
ACCESS = "tests/ledger/test_access.py"
STAKES = "tests/binder/test_stakes.py"
LADDER = "tests/dispatcher/test_ladder.py"
LEASE = "tests/kube/test_lease_rules.py"
QUOTA = "tests/binder/test_quota.py"

MUTANTS = (
    # ------------------------------------------------------------------------------- skip epoch
    Mutant(
        "skip epoch (script)", "stretto/ledger/ledger.lua",
        "if meta[1] ~= stamp then", "if not meta[1] then", (LOSSES,),
    ),
    Mutant(
        "skip epoch (twin)", "stretto/ledger/twin.py",
        'if meta.get("stamp") != self._stamp:', 'if not meta.get("stamp"):', (LOSSES, OPENING),
    ),
    Mutant(
        "install by an older epoch", "stretto/ledger/ledger.lua",
        "if epoch < previous then return {'fenced', meta[4]} end", "", (LOSSES,),
    ),
    Mutant(
        "skip epoch (proposals)", "binder/commit.py",
        "if incoming.binder_epoch != self.cluster.epoch:", "if False:", (COMMITS,),
    ),
    Mutant(
        "act without the Lease", "stretto/kube/lease.py",
        "and now < self._renewed_at + self.settings.renew_deadline_s",
        "and self._renewed_at >= 0", (LEASE,),
    ),
    Mutant(
        "valid from the answer on, not from the request", "stretto/kube/lease_keeper.py",
        "self._machine.wrote(self._take(answer), started=started)",
        "self._machine.wrote(self._take(answer), started=self._clock() + 0 * started)",
        ("tests/kube/test_lease_keeper.py",),
    ),
    # ---------------------------------------------------------------------------- skip sequence
    Mutant(
        "skip sequence (script)", "stretto/ledger/ledger.lua",
        "if seq ~= last + 1 then return {'gap', meta[2]} end", "", (LOSSES,),
    ),
    Mutant(
        "a repeated number is done again", "stretto/ledger/ledger.lua",
        "if seq == last then return {'ok', redis.call('HGET', META, 'reply')} end", "", (LOSSES,),
    ),
    Mutant(
        "a server that was started again is trusted", "stretto/ledger/ledger.lua",
        "local restarted = intact and (server == '' or meta[9] ~= server)",
        "local restarted = false", ("tests/ledger/test_server.py",),
    ),
    # --------------------------------------------------------------------- drop resourceVersion
    Mutant(
        "drop resourceVersion", "stretto/kube/client.py",
        "name=name, namespace=namespace, uid=uid, resource_version=str(resource_version)",
        'name=name, namespace=namespace, uid=uid, resource_version=""',
        ("tests/contract/test_binding.py", OPENING),
    ),
    Mutant(
        "drop uid", "stretto/kube/client.py",
        "name=name, namespace=namespace, uid=uid, resource_version=str(resource_version)",
        'name=name, namespace=namespace, uid="", resource_version=str(resource_version)',
        ("tests/contract/test_binding.py",),
    ),
    Mutant(
        "a newer version without the ledger's word", "binder/bindings.py",
        "return Action(ActionKind.REBASE, resource_version=answer.resource_version)",
        "return self.rebased(answer.resource_version, accepted=True)", (BINDS, LOOP),
    ),
    # --------------------------------------------------------------------------------- < for <=
    Mutant(
        "< for <= (script)", "stretto/ledger/ledger.lua",
        FIT, "sum + account[at + 3] >= account[at + 1] then",
        (RESERVE,),
    ),
    Mutant(
        "one too many (script)", "stretto/ledger/ledger.lua",
        FIT, "sum + account[at + 3] > account[at + 1] + 1 then",
        (RESERVE, EQUAL),
    ),
    Mutant(
        "foreign pods take no room", "stretto/ledger/ledger.lua",
        FIT, "sum > account[at + 1] then", (RESERVE,),
    ),
    Mutant(
        "charge nodes only", "stretto/ledger/ledger.lua",
        "local pairs_count = count + numbers[at + 3]", "local pairs_count = count", (RESERVE,),
    ),
    Mutant(
        "charge until something does not fit", "stretto/ledger/ledger.lua",
        "        for back = at, i - 2, 2 do give_back(accounts[numbers[back]], "
        "all_lines[numbers[back + 1]]) end\n", "", (RESERVE,),
    ),
    Mutant(
        "devices that a constraint tells apart are tried once",
        "stretto/placement/devices/allocator.py",
        "found = selected, values, row.capacity", "found = selected, row.capacity",
        ("tests/placement/test_devices.py",),
    ),
    Mutant(
        "what is taken of devices goes unnoticed", "stretto/placement/plugins/dynamic_resources.py",
        "        self.follows = claims.world.changes\n", "",
        ("tests/placement/test_parameters.py",),
    ),
    Mutant(
        "devices are nobody's in the ledger", "binder/charges.py",
        "                    found += self._of_device(result)\n", "                    pass\n",
        (DEVICES,),
    ),
    Mutant(
        "what the API says is taken is free in the ledger", "binder/accounts.py",
        "if n > 0})]", "if n < 0})]", (DEVICES, CLAIMS),
    ),
    Mutant(
        "free a pod's room and keep its charges", "stretto/ledger/ledger.lua",
        "        dirty_accounts[record[i]] = true\n", "        break\n", (RESERVE,),
    ),
    Mutant(
        "what is bound stays charged", "binder/endings.py",
        "if self._charges.release(uid) and bound:", "if self._charges.release(uid) and False:",
        (CLAIMS,),
    ),
    # ------------------------------------------------------------------------- free before fence
    Mutant(
        "free before fence", "binder/bindings.py",
        "return Action(ActionKind.FENCE, resource_version=answer.resource_version)",
        "return self.fenced(answer.resource_version)", (BINDS, LOOP),
    ),
    Mutant(
        "free before fence (successor)", "binder/recovery.py",
        "        await self._fence([pod.metadata for pod in suspects])\n", "", (OPENING,),
    ),
    Mutant(
        "a missing Lease proves that nothing is in flight", "binder/recovery.py",
        "    if tenure.clean:\n", "    if tenure.clean or tenure.first:\n", (OPENING,),
    ),
    Mutant(
        "an unknown answer counts as refused", "binder/bindings.py",
        "        self.unsure = True\n", "        self.unsure = False\n", (BINDS, LOOP),
    ),
    Mutant(
        "a proxy's 404 counts as the pod's", "stretto/kube/answers.py",
        'response.status == 404 and status is not None and status.reason == "NotFound"',
        "response.status == 404", ("tests/kube/test_bind_answers.py",),
    ),
    # ------------------------------------------------------------------------------------ the rest
    Mutant(
        "a bind to a node that has gone", "binder/executor.py",
        "if reservation.node_uid not in self._machine.cluster.nodes and not binding.unsure:",
        "if False:", (LOOP, "tests/binder/test_any_order.py"),
    ),
    Mutant(
        "the verdict before its step of the log", "binder/committer.py",
        'then binds: in this order."""\n        self.publish(tell=False)\n',
        'then binds: in this order."""\n', (LOOP,),
    ),
    Mutant(
        "drift is not looked for", "binder/auditor.py",
        "    wrong = {}\n", "    return {}\n    wrong = {}\n", ("tests/binder/test_audit.py",),
    ),
    Mutant(
        "a standby opens on what it happens to know", "binder/watches.py",
        "            *(reflector.confirm() for reflector in self._reflectors()),\n", "",
        ("tests/binder/test_takeover.py",),
    ),
    # ------------------------------------------------------------------------------------ devices
    Mutant(
        "allocate whatever the claim's version", "binder/claim_bodies.py",
        'body["metadata"]["resourceVersion"] = version', "pass", (DEVICES,),
    ),
    Mutant(
        "open without fencing claims", "binder/claim_fences.py",
        "for _ in range(min(IN_FLIGHT, len(queue))):", "for _ in range(0):", (DEVICES,),
    ),
    Mutant(
        "give devices up that others use", "binder/device_book.py",
        "and row.reserved_for in ((), (pod,))", "", (DEVICES,),
    ),
    # --------------------------------------------------------------------------------- preemption
    Mutant(
        "make others go than were proposed", "binder/preemptions.py",
        "or not uids <= set(proposal.victims) or not", "or not", (PREEMPTIONS,),
    ),
    Mutant(
        "spend a disruption twice", "binder/preemptions.py",
        "        self._budgets.charge(uid, pod.shape)\n", "", (PREEMPTIONS,),
    ),
    Mutant(
        "evict before the nomination", "binder/preemptions.py",
        "if claim.stage is not ClaimStage.EVICTING:", "if claim.stage is ClaimStage.OVER:",
        (PREEMPTIONS,),
    ),
    Mutant(
        "evict for a pod that was deleted", "binder/preemptions.py",
        "None if claim.withdrawn else self._still_needed(claim)", "self._still_needed(claim)",
        (PREEMPTIONS,),
    ),
    Mutant(
        "evict who need not go any more", "binder/preemptions.py",
        "return victim.uid in wanted and not", "return not", (PREEMPTIONS,),
    ),
    Mutant(
        "ask a victim for each claim", "binder/preemptions.py",
        "own = [v for v in left if v.uid in begun or self._wanted(v.uid) is claim]", "own = left",
        (PREEMPTIONS,),
    ),
    Mutant(
        "nominate whatever the pod's version", "binder/evictor.py",
        '"metadata": {"uid": member.uid, "resourceVersion": str(seat.resource_version)},',
        '"metadata": {"uid": member.uid},', (EVICTOR,),
    ),
    Mutant(
        "evict when one of a gang is nominated", "binder/preemptions.py",
        "and all(each.written for each in claim.seats)", "", (GANG_CLAIMS,),
    ),
    Mutant(
        "leave half of a gang", "binder/preemptions.py",
        "self._unasked(v, begun.union(needed or ()))", "self._unasked(v, needed or ())",
        (GANG_CLAIMS,),
    ),
    Mutant(
        "take part of a group", "stretto/placement/lots.py",
        "if key not in self._whole:", "if True:", (GANGS_PREEMPT,),
    ),
    Mutant(
        "break a gang before single pods", "stretto/placement/gang_preemption.py",
        "lots.priority_of(number), lots.grouped(number)", "lots.priority_of(number), False",
        (GANGS_PREEMPT,),
    ),
    Mutant(
        "take the room of important pods", "stretto/placement/gang_preemption.py",
        "while tier - low > 1:", "while False:", (GANGS_PREEMPT,),
    ),
    Mutant(
        "delete a victim by its name", "binder/evictor.py",
        'options = {"preconditions": {"uid": victim.uid}}', "options = {}", (EVICTOR,),
    ),
    Mutant(
        "evict a victim by its name", "stretto/kube/client.py",
        '"deleteOptions": {"preconditions": {"uid": uid}},', "", ("tests/contract/test_pods.py",),
    ),
    Mutant(
        "believe every conflict", "binder/evictor.py",
        "answer.status == 409 and await self._is_leaving(victim)", "answer.status == 409",
        (EVICTOR,),
    ),
    # --------------------------------------------------------------------------------- security
    Mutant(
        "any role may call anything", "stretto/rpc/servers.py",
        "if names.intersection(service.callers):", "if names:", (CALLERS,),
    ),
    Mutant(
        "keep a certificate that was renewed", "stretto/config/renewable.py",
        "if marks == self._marks:", "if True:", (CALLERS,),
    ),
    Mutant(
        "metrics for any user of the cluster", "stretto/kube/reviews.py",
        "Verdict.ALLOWED if allowed else Verdict.FORBIDDEN", "Verdict.ALLOWED",
        ("tests/kube/test_reviews.py",),
    ),
    Mutant(
        "metrics when nobody says who asks", "stretto/telemetry/guard.py",
        'logger.exception("a reader of %s could not be reviewed", path)\n'
        "            return Verdict.UNKNOWN",
        "return Verdict.ALLOWED", (GUARD,),
    ),
    Mutant(
        "any certificate reads metrics", "stretto/telemetry/guard.py",
        "if READER in names:", "if names:", (GUARD,),
    ),
    Mutant(
        "a ledger's user that may do anything", "stretto/ledger/server_check.py",
        "    if beyond:\n", "    if False:\n", (ACCESS,),
    ),
    Mutant(
        "a ledger in plain text anywhere", "stretto/ledger/access.py",
        'if plain.startswith("redis:") and not self.insecure and not is_local(url):', "if False:",
        (ACCESS,),
    ),
    # ------------------------------------------------------------------------------------ quota
    Mutant(
        "commit without a look at the quota", "stretto/placement/kernel.py",
        "if snapshot.quota.on and snapshot.quota.refusal(shape):", "if False:", (QUOTA,),
    ),
    Mutant(
        "what ends goes on counting", "binder/quota.py",
        "self._accounts.use(queue, amounts, -1)", "pass", (QUOTA,),
    ),
    # --------------------------------------------------------------------- old pictures, lost data
    Mutant(
        "commit on an old picture", "binder/committer.py",
        "            if self._fresh():\n                await self._commit()",
        "            await self._commit()", ("tests/binder/test_commit_loop.py",),
    ),
    Mutant(
        "take a lost ledger for one that has drifted", "stretto/ledger/client.py",
        "self._calls.check_position(*position)", "_ = position",
        ("tests/ledger/test_losses.py", "tests/binder/test_audit.py"),
    ),
    # ----------------------------------------------------------------------------------- stakes
    Mutant(
        "keep a stake's room from its own unit", "binder/commit.py",
        "with stakes.lifted(stake_key(incoming.proposal.unit.unit_id, incoming.shapes[0])):",
        'with stakes.lifted(""):', (STAKES,),
    ),
    Mutant(
        "a stake outlives its unit", "binder/commit.py",
        "tentative.charges)\n        self.stakes.used(incoming)", "tentative.charges)", (STAKES,),
    ),
    Mutant(
        "two stakes a pool", "binder/stakes.py", "if waits or ahead or not known",
        "if waits or not known", (STAKES,),
    ),
    Mutant(
        "a stake on the whole pool", "binder/stakes.py",
        "if len(wanted) > max(1, int(pool * SHARE)):", "if len(wanted) > pool:", (STAKES,),
    ),
    Mutant(
        "stakes never expire", "binder/stakes.py",
        "if now - stake.grown_s >= EXPIRE_S:", "if False:", (STAKES,),
    ),
    Mutant(
        "lend a stake's room for ever", "binder/stakes.py",
        "now - stake.born_s >= MATURE_S", "now < stake.born_s", (STAKES,),
    ),
    Mutant(
        "ask for a stake for what fits no empty node", "dispatcher/ladder.py",
        "return any(each.nodes > each.unresolvable", "return any(each.nodes", (LADDER,),
    ),
    Mutant(
        "lose where it was lost before", "dispatcher/ladder.py",
        "others = [name for name in names if name != record.sent_to]", "others = [record.sent_to]",
        (LADDER,),
    ),
)  # fmt: skip
