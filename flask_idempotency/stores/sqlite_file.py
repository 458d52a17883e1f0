"""The file of a SQLite store: where a URL says it is, whether it can be written, and who else may read it."""

import logging
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkstemp
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import URL

MOUNTS = Path("/proc/self/mounts")
_NETWORKS = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre"),
    *("ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"),
}

log = logging.getLogger("flask_idempotency")


def default_url(folder: Path) -> URL:
    """Give the URL of the file in which the records are unless the app says otherwise."""
    return URL.create("sqlite", database=str(folder / "idempotency.sqlite"))


def in_folder(url: URL, folder: Path) -> URL:
    """Complete a relative path. A URI of SQLite's own is left as it is."""
    path = url.database
    return url if not path or path == ":memory:" or _is_uri(url) else url.set(database=str(folder / path))


def is_in_memory(url: URL) -> bool:
    """Say whether a URL names an in-memory database."""
    return url.database in (None, "") or str(path_in(url)) == ":memory:" or url.query.get("mode") == "memory"


def path_in(url: URL) -> Path:
    """Give the file that a URL names, by a path or by a URI of SQLite's own."""
    named = url.database or ""
    return Path(unquote(urlsplit(named).path) if _is_uri(url) else named)


def _is_uri(url: URL) -> bool:
    return "uri" in url.query and (url.database or "").startswith("file:")


def network_file_system(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Name the network file system that a file is on; None if it is on none, or if this system does not tell."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    mounted = [line.split()[1:3] for line in lines]
    place = path.resolve()
    above = [(Path(folder.replace("\\040", " ")), kind) for folder, kind in mounted]
    _, kind = max(
        ((folder, kind) for folder, kind in above if folder == place or folder in place.parents),
        key=lambda each: len(each[0].parts),
        default=(place, ""),
    )
    return kind if kind in _NETWORKS else None


def may_be_written(path: Path) -> bool:
    """Say whether the file and its log can be written, or created with their folders."""
    try:
        path.stat()
    except FileNotFoundError:
        folder = next(each for each in path.parents if os.path.exists(each))  # noqa: PTH110  # which never raises
        return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    except (OSError, ValueError):  # a folder that may not be entered, a file in its place, or an impossible name
        return False
    return path.is_file() and os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents unless they exist, so that only the owner can enter them."""
    for each in reversed([folder, *folder.parents]):
        if not each.exists():
            each.mkdir(exist_ok=True)
            each.chmod(0o700)  # whatever the umask says


def make_private(path: Path, *, makes: bool) -> None:
    """Create the file before SQLite does, readable only by its owner; its log gets the same mode."""
    if makes and not path.exists():
        with suppress(OSError):  # it exists by now; or it cannot be made, and SQLite says why
            _make_empty(path)
    for suffix in ("", "-wal", "-shm"):
        _keep_from_others(path.with_name(path.name + suffix))


def _make_empty(path: Path) -> None:
    """Create a file that only its owner can read. It gets its name once it is closed.

    SQLite's locks belong to the process: closing a file that another thread has opened as a database by then would
    release that thread's locks, and two processes would write at once.
    """
    file, made = mkstemp(dir=path.parent, prefix=f"{path.name}-")
    try:
        os.fchmod(file, 0o600)  # whatever the umask says
        os.close(file)
        os.link(made, path)
    finally:
        Path(made).unlink()


def _keep_from_others(path: Path) -> None:
    """Remove the permissions of others from a file that existed before.

    A group that may write keeps its access: workers of several users share such a file. Read-only access is removed.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    kept = mode & (0o770 if mode & stat.S_IWGRP else 0o700)
    if mode != kept:
        try:
            path.chmod(kept)
        except OSError:
            _warn_of_readers(path)


@cache
def _warn_of_readers(path: Path) -> None:
    """Say once that a file is not private."""
    log.warning(
        "Others can read %s, which holds stored answers, and only its owner can change that: chmod 600 %s", path, path
    )
