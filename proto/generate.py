"""Generate the Python code beside the .proto files, or check that it is fresh.

Run from anywhere: ``python proto/generate.py [--check]``. The output is committed, so that a user
needs no compiler; ``make check`` compares it.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

from grpc_tools import protoc  # type: ignore[import-untyped]

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def generate(*, out: pathlib.Path) -> None:
    """Write the generated modules below ``out``; the package path ``proto/`` is part of their
    imports."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "proto").glob("*.proto"))
    args = ["protoc", f"-I{ROOT}", f"--python_out={out}", f"--pyi_out={out}"]
    if protoc.main([*args, f"--grpc_python_out={out}", *sources]) != 0:
        raise SystemExit("proto: the compiler refused the sources; see its message above")


def stale(*, fresh: pathlib.Path) -> list[str]:
    """Name the committed files that differ from freshly generated ones."""
    names = [path.name for path in (fresh / "proto").iterdir()]
    return [
        name
        for name in sorted(names)
        if not (ROOT / "proto" / name).exists()
        or (ROOT / "proto" / name).read_bytes() != (fresh / "proto" / name).read_bytes()
    ]


def main() -> int:
    """Entry point; exit code 1 when --check finds a stale file."""
    if "--check" not in sys.argv[1:]:
        generate(out=ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(out=pathlib.Path(folder))
        names = stale(fresh=pathlib.Path(folder))
    for name in names:
        sys.stderr.write(f"proto/{name} is stale: run `make proto` and commit the result\n")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
