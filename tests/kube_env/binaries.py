"""Where the real control plane's programs are, and how they come to be there.

``KUBEBUILDER_ASSETS`` if set; else a cache folder, which is filled once by building the programs
from Go modules. The build takes about six minutes on two cores, so it is not done inside a test but
before the first one (see :mod:`tests.kube_env.fixtures`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

VERSION = "v1.37.2"
NEEDED = ("etcd", "kube-apiserver")
BUILD = Path(__file__).parent / "go" / "build.sh"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where built programs are kept."""
    base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "stretto" / "kube-env" / VERSION


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder with the programs, or None."""
    assets = environ.get("KUBEBUILDER_ASSETS")
    folder = Path(assets) if assets else cache_folder(environ)
    return folder if all(os.access(folder / name, os.X_OK) for name in NEEDED) else None


def can_build(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a build may help."""
    return not environ.get("KUBEBUILDER_ASSETS") and shutil.which("go") is not None


def how_to_get(environ: Mapping[str, str] = os.environ) -> str:
    """Why they are missing and what to do, in one line."""
    if environ.get("KUBEBUILDER_ASSETS"):
        return (
            f"KUBEBUILDER_ASSETS={environ['KUBEBUILDER_ASSETS']} lacks {' or '.join(NEEDED)}; "
            "correct it, or unset it to build them with Go"
        )
    return (
        "needs a real kube-apiserver and etcd: set KUBEBUILDER_ASSETS to a folder that has both "
        f"(setup-envtest use -p path), or install Go 1.26 and run {BUILD} {cache_folder(environ)}"
    )


def build(environ: Mapping[str, str] = os.environ) -> Path:
    """Build into the cache folder, unless another process has just done so."""
    folder = cache_folder(environ)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find(environ) is None:
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run([BUILD, partial, VERSION], check=True)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    return folder
