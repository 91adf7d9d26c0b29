"""An authority of a test's own, by openssl: certificates with any names."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any

from stretto.rpc.security import Security


@dataclasses.dataclass(frozen=True)
class Issued:
    """Where a certificate, its key and the authority are."""

    certificate: Path
    key: Path
    authority: Path

    def security(self) -> Security:
        return Security(certificate=self.certificate, key=self.key, authority=self.authority)

    def flags(self) -> list[str]:
        """As a role takes them."""
        return [
            f"--tls-certificate={self.certificate}", f"--tls-key={self.key}",
            f"--tls-authority={self.authority}",
        ]  # fmt: skip

    def settings(self) -> dict[str, Any]:
        return {
            "tls_certificate": self.certificate,
            "tls_key": self.key,
            "tls_authority": self.authority,
        }

    def become(self, other: Issued) -> None:
        """Take the contents of another's files, each at once, as a mounted secret does."""
        for field in dataclasses.fields(self):
            path: Path = getattr(self, field.name)
            fresh = path.with_suffix(".fresh")
            fresh.write_bytes(getattr(other, field.name).read_bytes())
            os.replace(fresh, path)


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder: Path, *, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.key, self.file = folder / "ca.key", folder / "ca.crt"
        self._made = 0
        openssl(
            "req", "-x509", *new_key(self.key), "-subj", f"/CN={name}", "-days", "2",
            "-out", str(self.file),
        )  # fmt: skip

    def issue(self, *names: str, days: int = 2) -> Issued:
        """A certificate for a server and a client, with these DNS names, and for 127.0.0.1."""
        self._made += 1
        stem = self.folder / f"{self._made:02}"
        key, request, extensions = (stem.with_suffix(e) for e in (".key", ".csr", ".ext"))
        certificate = stem.with_suffix(".crt")
        authority = stem.with_suffix(".ca")
        authority.write_bytes(self.file.read_bytes())
        alternatives = ",".join([*(f"DNS:{name}" for name in names), "IP:127.0.0.1"])
        extensions.write_text(
            f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        openssl("req", *new_key(key), "-subj", f"/CN={names[0]}", "-out", str(request))
        openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.file), "-CAkey", str(self.key),
            "-CAcreateserial", "-days", str(days), "-extfile", str(extensions),
            "-out", str(certificate),
        )  # fmt: skip
        return Issued(certificate, key, authority)


def new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(path)]


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
