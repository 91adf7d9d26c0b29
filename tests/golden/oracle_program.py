"""The oracle: where it is, how it comes to be there, and asking it.

It is built once from ``oracle/`` into the cache folder, beside the real control plane's programs,
in a folder named after its sources.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.kube_env.binaries import cache_folder

SOURCES = Path(__file__).parent / "oracle"
GENERATOR = Path(__file__).parent / "generator" / "gen.py"


def program() -> Path:
    """Where the built oracle is, or would be."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.go"), SOURCES / "go.mod", SOURCES / "go.sum"]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache_folder().parent / f"oracle-{digest.hexdigest()[:16]}" / "oracle"


def how_to_get() -> str:
    """Why it is missing and what to do, in one line."""
    return f"the oracle is built from {SOURCES} with Go 1.26 and a module proxy: install Go"


def build(say: Callable[[str], object] = sys.stderr.write) -> Path:
    """Build it unless it is there already.

    Raises:
        subprocess.CalledProcessError: Go failed.
    """
    built = program()
    if built.exists():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with (built.parent.parent / "oracle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            say(f"Building the oracle into {built.parent}: once, some minutes …\n")
            partial = built.with_suffix(".partial")
            command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", partial, "."]
            subprocess.run(command, cwd=SOURCES, check=True, env={**os.environ, "CGO_ENABLED": "0"})
            partial.rename(built)
    return built


def can_build() -> bool:
    """Whether it is there or Go is."""
    return program().exists() or shutil.which("go") is not None


def worlds(*, family: str, seed: int, count: int, variant: str = "public") -> Iterator[bytes]:
    """Freshly generated worlds, one JSON line each; the same arguments give the same worlds."""
    command = [sys.executable, GENERATOR, "--family", family, "--seed", str(seed)]
    command += ["--count", str(count), "--variant", variant]
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    yield from made.stdout.splitlines(keepends=True)


@contextlib.contextmanager
def asked(*flags: str) -> Iterator[Callable[[bytes], bytes]]:
    """A running oracle: a function from one world (a line) to its answer (a line)."""
    command = [build(), *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as oracle:
        assert oracle.stdin is not None
        assert oracle.stdout is not None
        stdin, stdout = oracle.stdin, oracle.stdout

        def ask(line: bytes) -> bytes:
            stdin.write(line)
            stdin.flush()
            answer = stdout.readline()
            if not answer:
                raise RuntimeError(f"the oracle ended with code {oracle.wait()}")
            return answer

        try:
            yield ask
        finally:
            stdin.close()
            stdout.close()
