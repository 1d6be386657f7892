"""The programs of an embedded server, within reach of the account that the server runs as."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from durable.dev.home import Account, Home, can_reach


@dataclass(frozen=True)
class Installation:
    """Programs and the files they need, all below one root, so that copies find each other."""

    root: Path
    programs: str
    server_name: str
    parts: tuple[str, ...]

    @property
    def server(self) -> str:
        return self.program(self.server_name)

    def program(self, name: str) -> str:
        return str(self.root / self.programs / name)


def within_reach(installation: Installation, home: Home) -> Installation:
    """Return the installation, or its copy in the home if the server's account cannot run the original."""
    original = Path(installation.server)
    if home.account is None or can_reach(original, home.account):
        return installation
    found = original.stat()
    version = hashlib.sha256(f"{original} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:12]
    copied = home.path / f"programs-{version}"
    if not copied.exists():
        copy_installation(installation, copied, home.account)
    return replace(installation, root=copied)


def copy_installation(installation: Installation, target: Path, account: Account) -> None:
    """Copy it under another name first, so that a copy with the right name is a whole one."""
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for part in installation.parts:
        source, copy = installation.root / part, unfinished / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True)
        elif source.exists():
            shutil.copy2(source, copy)
    for path in (unfinished, *unfinished.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    unfinished.rename(target)


def output_of(*command: str) -> str:
    """Return what the command prints, nothing if it does not run on this machine."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
