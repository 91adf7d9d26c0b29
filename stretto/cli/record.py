"""`stretto record`: what happens on a cluster, written down for `stretto check-history`.

The API server's history is recorded while it happens. The other two logs are kept by those whose
acts they tell, the ledger's server and the Binder; they are copied when the recording ends, after
the API's, so that they know of everything that the API's log shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import shlex
import shutil
import sys
import time

import msgspec

from stretto.audit.checker import API_LOG, AUDIT_LOG, LEDGER_FOLDER, OWNER
from stretto.audit.recorder import PATHS, Recorder
from stretto.cli.run import cluster_uid
from stretto.cli.runner import run_role
from stretto.config.common import check_name
from stretto.kube.client import KubeClient
from stretto.kube.config import KubeConfig
from stretto.kube.errors import KubeError, KubeRefused
from stretto.kube.leadership import unless
from stretto.model.errors import OperatorError

BINDER_LEASE = "stretto-binder"
LINE_EVERY_S = 5.0
LIST_TIMEOUT_S = 60.0
"""A list of everything is read at once."""
DATA = "appendonlydir"
"""The ledger's server's own name for its append-only files."""
EPILOG = (
    "Beside `stretto run --audit-log FILE` say --audit-log FILE --ledger "
    "~/.local/state/stretto/ledger/UID, with the uid of the namespace kube-system. What is not "
    "given is not checked. End it with Ctrl-C or SIGTERM when every pod is bound or told why not; "
    "the last line that it prints is the command that checks what was recorded."
)


class RecordError(OperatorError):
    """Nothing can be recorded as asked."""


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """Flags of `stretto record`."""

    out: pathlib.Path = dataclasses.field(
        default=pathlib.Path("out/history"),
        metadata={"help": "folder of the history, one for each recording"},
    )
    kubeconfig: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "kubeconfig of the cluster; without it the in-cluster account",
            "env": "KUBECONFIG",
        },
    )
    ledger: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={"help": f"data folder of the ledger's server, with {DATA}; copied at the end"},
    )
    audit_log: pathlib.Path | None = dataclasses.field(
        default=None,
        metadata={
            "help": "the Binder's --audit-log, kept since before the recording; copied at the end"
        },
    )
    lease_namespace: str = dataclasses.field(
        default="kube-system", metadata={"help": "namespace of the two leader Leases"}
    )
    scheduler_name: tuple[str, ...] = dataclasses.field(
        default=("stretto",), metadata={"help": "schedulerName that is served; repeatable"}
    )

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        check_name(self.lease_namespace, flag="--lease-namespace")
        if not all(self.scheduler_name):
            raise ValueError("--scheduler-name is empty; name at least one")


def check_files(settings: RecordSettings) -> None:
    """Make the folder, and look whether what is to be copied at the end is there.

    Raises:
        RecordError: it is not, or the folder cannot be used.
    """
    out, ledger, audit = settings.out, settings.ledger, settings.audit_log
    if ledger is not None and not (ledger / DATA).is_dir():
        raise RecordError(
            f"--ledger {ledger}: there is no {DATA} in it; name the data folder of a Redis or "
            "Valkey server with `appendonly yes`"
        )
    if audit is not None and not audit.is_file():
        raise RecordError(
            f"--audit-log {audit}: there is no such file; name that of the Binder's --audit-log"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / OWNER).open("ab").close()
    except OSError as error:
        raise RecordError(
            f"--out {out}: {error.strerror}; name a folder that can be written"
        ) from None
    if (out / API_LOG).exists():
        raise RecordError(f"--out {out}: there is a recording in it; name another folder")


async def check_lease(client: KubeClient, namespace: str) -> None:
    """The ledger's keys carry the namespace of the Binder's Lease; one that is only elsewhere is
    another ledger's.

    Raises:
        RecordError: it is elsewhere.
        KubeRefused: Leases cannot be read.
    """
    answer = await client.get(PATHS["leases"])
    if not answer.ok:
        raise KubeRefused(f"list of leases: {answer.text}", status=answer.status)
    found = [item["metadata"] for item in msgspec.json.decode(answer.body).get("items") or ()]
    places = sorted(meta["namespace"] for meta in found if meta["name"] == BINDER_LEASE)
    if places and namespace not in places:
        raise RecordError(
            f"--lease-namespace {namespace}: the Lease {BINDER_LEASE} is in {', '.join(places)}; "
            "name that one"
        )


async def show_progress(recorder: Recorder, stop: asyncio.Event) -> None:
    """A line now and then until asked to stop."""
    began = time.monotonic()
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LINE_EVERY_S)
        recorder.check_tasks()
        counts = "  ".join(f"{kind} {count:,}" for kind, count in recorder.lines.items())
        away = "".join(f"  {kind} not watched: {why}" for kind, why in recorder.away.items())
        took_s = time.monotonic() - began
        sys.stderr.write(f"{took_s:6.1f} s  {counts}  gaps {len(recorder.gaps)}{away}\n")


async def record_api(client: KubeClient, log: pathlib.Path, *, stop: asyncio.Event) -> None:
    """Record the API server's history until asked to stop, and whether its end is whole.

    Raises:
        KubeError: the API server does not let us read everything; there is no log then.
        RecordError: the log cannot be written.
    """
    began = False
    try:
        async with Recorder(client, log) as recorder:
            began = True
            paths = ", ".join(recorder.paths)
            sys.stderr.write(f"stretto record: recording {paths} at {client.url}\n")
            await show_progress(recorder, stop)
            try:
                await recorder.caught_up()
            except (TimeoutError, KubeError) as error:
                recorder.end_unknown(f"the end was not recorded: {error or 'too slow'}")
            for gap in recorder.gaps:
                sys.stderr.write(f"gap: {gap}\n")
    except KubeError:
        if not began:
            await asyncio.to_thread(log.unlink, missing_ok=True)
        raise
    except OSError as error:
        raise RecordError(f"{log}: {error.strerror}; the recording ends here") from None


def copy_logs(settings: RecordSettings) -> None:
    """The logs of the ledger's server and the Binder into the folder; what cannot be copied is
    told, for the API's history is there all the same."""
    out, ledger, audit = settings.out, settings.ledger, settings.audit_log
    try:
        if ledger is not None and ledger.resolve() != (out / LEDGER_FOLDER).resolve():
            for data in ledger.glob(f"{DATA}*"):
                shutil.copytree(data, out / LEDGER_FOLDER / data.name, dirs_exist_ok=True)
        if audit is not None and audit.resolve() != (out / AUDIT_LOG).resolve():
            shutil.copyfile(audit, out / AUDIT_LOG)
    except OSError as error:
        why = error.strerror or error
        sys.stderr.write(f"stretto record: --ledger or --audit-log: {why}; copy them by hand\n")


def last_words(settings: RecordSettings) -> str:
    """What is in the folder, and how to check it."""
    logs = {LEDGER_FOLDER: "the ledger's log", AUDIT_LOG: "the Binder's audit log"}
    missing = [text for name, text in logs.items() if not (settings.out / name).exists()]
    lines = [f"recorded without {text}: its rules will not be checked" for text in missing]
    lines.append("to check it (with --not-at-rest if pods were still being scheduled at the end):")
    names = [] if settings.scheduler_name == ("stretto",) else settings.scheduler_name
    flags = [f"--scheduler-name={name}" for name in names]
    return "\n".join([*lines, shlex.join(["stretto", "check-history", str(settings.out), *flags])])


async def record(settings: RecordSettings, *, stop: asyncio.Event) -> int:
    """Record until ``stop``, then say how to check it."""
    path = settings.kubeconfig
    config = await KubeConfig.from_file(path) if path else KubeConfig.in_cluster()
    await asyncio.to_thread(check_files, settings)
    uid = await unless(stop, cluster_uid(config))
    if uid is None:
        return 0
    async with KubeClient(config, timeout_s=LIST_TIMEOUT_S) as client:
        await check_lease(client, settings.lease_namespace)
        owner = f"{uid}:{settings.lease_namespace}/{BINDER_LEASE}"
        (settings.out / OWNER).write_text(owner)
        await record_api(client, settings.out / API_LOG, stop=stop)
    await asyncio.to_thread(copy_logs, settings)
    sys.stdout.write(last_words(settings) + "\n")
    return 0


def record_command(settings: RecordSettings) -> int:
    """Entry point of `stretto record`."""
    return run_role(lambda stop: record(settings, stop=stop))
