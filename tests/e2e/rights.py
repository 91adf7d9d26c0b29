"""``python -m tests.e2e.rights``: are the rights that the manifests grant those that are used?

Runs end-to-end tests with the roles under the accounts of deploy/base while the API server keeps an
audit log, and holds what was asked for against what is granted, both ways.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.test_manifests import EXPECTED, Right

TESTS = (
    "test_roles_under_rbac", "test_secured", "test_preemption", "test_volumes", "test_devices",
    "test_gangs", "test_gang_conditions", "test_takeover", "test_pods_change_in_flight",
    "test_quota", "test_admission",
)  # fmt: skip
IMPLIED = {
    ("patch", "resource.k8s.io/resourceclaims/status", "", ""): (
        "patch", "resource.k8s.io/resourceclaims/binding", "", "",
    ),
}  # fmt: skip
"""What the API server itself asks for in order to do something else; it is in no log."""
ACCOUNT = "system:serviceaccount:stretto:"
BY_NAME = ("coordination.k8s.io/leases", "/namespaces")
"""Granted for single objects: their names count."""


def requests(folder: Path) -> Iterator[tuple[str, Right, int]]:
    """(account, right, status) of all that the log holds."""
    for file in sorted(folder.glob("audit-*.jsonl")):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            user, what = event["user"]["username"], event.get("objectRef")
            if not user.startswith(ACCOUNT) or what is None:  # /version and the like
                continue
            resource = f"{what.get('apiGroup', '')}/{what['resource']}"
            named = resource in BY_NAME and event["verb"] in ("get", "update")
            sub = f"/{what['subresource']}" if "subresource" in what else ""
            name = what.get("name", "") if named else ""
            space = what.get("namespace", "") if named and resource != "/namespaces" else ""
            status = event.get("responseStatus", {}).get("code", 0)
            yield user.removeprefix(ACCOUNT), (event["verb"], resource + sub, name, space), status


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(__file__).parent / f"{name}.py") for name in TESTS]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *files, *sys.argv[1:]],
            env={**os.environ, "STRETTO_AUDIT": folder},
            check=False,
        )
        return max(done.returncode, judged(Path(folder)))


def judged(folder: Path) -> int:
    """Print the table; 1 if something is granted and unused, or used and not granted."""
    used: Counter[tuple[str, Right]] = Counter()
    refused: Counter[tuple[str, Right]] = Counter()
    for account, right, status in requests(folder):
        (refused if status in (401, 403) else used)[account, right] += 1
    granted = {(a, right) for a, rights in EXPECTED.items() for right in rights}
    mine = {key for key in used if key[0] in EXPECTED}
    mine |= {(account, IMPLIED[right]) for account, right in mine if right in IMPLIED}
    for title, keys in (
        ("granted, not used", granted - mine),
        ("used, not granted", mine - granted),
        ("refused", {key for key in refused if key[0] in EXPECTED}),
    ):
        print(f"{title}: {len(keys)}")
        for account, right in sorted(keys):
            print(f"  {account}: {' '.join(word for word in right if word)}")
    asked = sum(used[key] for key in mine)
    print(f"granted {len(granted)}, used {len(mine & granted)}, by {asked} requests")
    return int(granted != mine)


if __name__ == "__main__":
    sys.exit(main())
