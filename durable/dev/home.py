"""The folder of an embedded server, within reach of the account that the server runs as."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from durable.dev.errors import ServerUnavailable

PUBLIC_FOLDER = Path("/var/tmp")


@dataclass(frozen=True)
class Account:
    """A user of this machine that is not root."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Home:
    """The folder of one server."""

    path: Path
    account: Account | None
    ephemeral: bool

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    @property
    def note(self) -> Path:
        """The file in which a guardian notes pid and port, for those who come after a killed owner."""
        return self.path / "server.note"

    def last_words(self, *, lines: int = 15) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def make_private(self, name: str) -> Path:
        """Return a folder that belongs to the server's account, made if it is missing."""
        folder = self.path / name
        folder.mkdir(mode=0o700, exist_ok=True)
        if self.account is not None:
            os.chown(folder, self.account.uid, self.account.gid)
        return folder


def unprivileged_account() -> Account | None:
    """Return the account for a server that must not run as root, None where we are not root ourselves."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


@contextmanager
def home_in(folder: Path | None, account: Account | None) -> Iterator[Home]:
    """Yield the home in that folder, or in a temporary one which is removed afterwards."""
    if folder is not None:
        yield Home(lasting_folder(folder, account), account, ephemeral=False)
        return
    path = temporary_folder(account)
    try:
        yield Home(path, account, ephemeral=True)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def temporary_folder(account: Account | None) -> Path:
    base = Path(tempfile.gettempdir())
    if not can_reach(base, account):
        base = PUBLIC_FOLDER
    path = Path(tempfile.mkdtemp(prefix="durable-", dir=base)).resolve()
    path.chmod(0o711)
    return path


def lasting_folder(folder: Path, account: Account | None) -> Path:
    """Return the folder itself, or its stand-in where the account cannot reach it, as below /root.

    Making its parents readable for everybody is not ours to do.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if can_reach(folder, account):
        return folder
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    path = PUBLIC_FOLDER / f"durable-{name}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise ServerUnavailable(f"{path} stands in for {folder} but belongs to somebody else: remove it")
    path.chmod(0o711)
    return path


def can_reach(path: Path, account: Account | None) -> bool:
    """Return whether the account may enter the folder, or run the file, and every folder above it."""
    if account is None:
        return True
    path = path.resolve()
    return all(may_execute(each.stat(), account) for each in (path, *path.parents))


def may_execute(found: os.stat_result, account: Account) -> bool:
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
