"""``python tests/checks/supply_chain.py [--write]``: the locks are whole, and the bill of materials
is that of the lock.

What is installed is what was looked at: every requirement is pinned, with the hashes of its files;
what runs is a part of what is tested; each direct dependency is locked within its bounds.
``requirements/sbom.cdx.json`` says in CycloneDX what a release is made of; ``--write`` makes it
anew.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"
SBOM = FOLDER / "sbom.cdx.json"
MAX_DIRECT = 15
"""Runtime packages that we ask for ourselves; each one more is somebody else to trust."""
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\\n]+?))? \\$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?: \\)?$")


class Locked(NamedTuple):
    """A requirement of a lock."""

    version: str
    marker: str
    hashes: tuple[str, ...]


def read_lock(text: str, *, name: str) -> tuple[dict[str, Locked], list[str]]:
    """The requirements of a lock file, and what is wrong with it."""
    found: dict[str, tuple[str, str, list[str]]] = {}
    problems = []
    hashes: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        if entry := _ENTRY.match(line):
            hashes = []
            key = canonicalize_name(entry[1])
            found[key] = (entry[2], (entry[3] or "").strip(), hashes)
        elif line.startswith(" ") and (digest := _HASH.match(words)):
            hashes.append(digest[1])
        else:
            problems.append(f"{name}:{number}: {words[:60]!r} is neither name==version nor a hash")
    problems += [f"{name}: {key} has no hash" for key, (_, _, each) in found.items() if not each]
    locked = {key: Locked(v, m, tuple(sorted(h))) for key, (v, m, h) in sorted(found.items())}
    return locked, problems


def unlocked(project: dict[str, Any], run: dict[str, Locked], dev: dict[str, Locked]) -> list[str]:
    """Direct dependencies that the locks do not hold, or hold at another version than allowed."""
    direct = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]["local"]
    wanted = [(text, run, "run.lock") for text in (*direct, *extras)]
    wanted += [(text, dev, "dev.lock") for text in project["dependency-groups"]["dev"]]
    problems = []
    for text, lock, name in wanted:
        asked = Requirement(text)
        held = lock.get(canonicalize_name(asked.name))
        if held is None or not asked.specifier.contains(held.version, prereleases=True):
            have = held.version if held else "nothing"
            problems.append(f"{name}: holds {have} for {text!r} of pyproject.toml; `make lock`")
    problems += [
        f"dev.lock: {name} is not as in run.lock; `make lock`"
        for name, each in run.items()
        if dev.get(name) != each
    ]
    if len(direct) > MAX_DIRECT:
        problems.append(f"pyproject.toml: {len(direct)} direct dependencies, at most {MAX_DIRECT}")
    return problems


def sbom_of(project: dict[str, Any], run: dict[str, Locked]) -> str:
    """The bill of materials; the same text for the same lock."""
    own = project["project"]
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{each.version}",
            "name": name,
            "version": each.version,
            "purl": f"pkg:pypi/{name}@{each.version}",
            "scope": "optional" if each.marker else "required",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in each.hashes],
        }
        for name, each in run.items()
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": f"pkg:pypi/{own['name']}@{own['version']}",
                "name": own["name"],
                "version": own["version"],
                "purl": f"pkg:pypi/{own['name']}@{own['version']}",
                "licenses": [{"license": {"id": own["license"]}}],
            }
        },
    }
    head = json.dumps(document, indent=1)[:-2]
    lines = ",\n".join(json.dumps(each) for each in components)  # one a line, for people's diffs
    return f'{head},\n "components": [\n{lines}\n]}}\n'


def main(words: list[str]) -> int:
    """Print what is wrong."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run, problems = read_lock((FOLDER / "run.lock").read_text(), name="run.lock")
    dev, more = read_lock((FOLDER / "dev.lock").read_text(), name="dev.lock")
    problems += more + unlocked(project, run, dev)
    text = sbom_of(project, run)
    if "--write" in words:
        SBOM.write_text(text)
    elif not SBOM.exists() or SBOM.read_text() != text:
        problems.append(f"{SBOM.relative_to(ROOT)} is not that of run.lock; `make sbom`")
    for problem in problems:
        print(problem, file=sys.stderr)  # noqa: T201
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
