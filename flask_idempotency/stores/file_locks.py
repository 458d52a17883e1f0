"""Locks on single bytes of a file, which the system releases when the process that holds them dies.

They belong to an open file description: whoever wants locks opens the file anew, and so the threads and greenlets of
one process exclude each other like strangers. The bytes need not exist; the file stays empty.
"""

import errno
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from flask_idempotency.stores.forks import start_afresh_in_child

try:
    import fcntl
except ImportError:  # Windows
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")

_FLOCK: Final = "hhqqi0q"  # struct flock: type, whence, start, length, process; padded as C does
_HELD_BY_ANOTHER: Final = (errno.EAGAIN, errno.EACCES)
_MAY_WRITE: Final = ((0o200, 0o600), (0o020, 0o060), (0o002, 0o006))  # whoever has the one gets the other


class FileLocks:
    """The locks of one opening of a file. Raises OSError if the file cannot be opened or locked."""

    def __init__(self, path: Path, beside: Path) -> None:
        """Open the file at *path*, and create it if necessary for whoever may write the file *beside* it."""
        self._process, self._file = os.getpid(), None  # type: int, int | None
        self._file = _OPEN[id(self)] = _open(path, beside)

    def take(self, byte: int) -> bool:
        """Lock a byte, unless another opening of the file has locked it; never wait."""
        try:
            self._ask(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, byte)
        except OSError as error:
            if error.errno in _HELD_BY_ANOTHER:
                return False
            raise
        return True

    def is_taken(self, byte: int) -> bool:
        """Say whether another opening of the file has locked a byte."""
        kind, *_ = struct.unpack(_FLOCK, self._ask(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte))
        return bool(kind != fcntl.F_UNLCK)

    def close(self) -> None:
        """Release all locks, in one step. Calling this twice does no harm.

        A child process shares the locks of its parent: it closes what it has inherited and unlocks nothing.
        """
        file, self._file = self._file, None
        if file is None or _OPEN.pop(id(self), None) is None:
            return
        try:
            if os.getpid() == self._process:  # a child that has inherited the file may keep it open for a while
                with suppress(OSError):  # a file system without locks
                    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        finally:
            os.close(file)

    def __del__(self) -> None:
        self.close()

    def _ask(self, command: int, kind: int, byte: int) -> bytes:
        if self._file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return fcntl.fcntl(self._file, command, struct.pack(_FLOCK, kind, os.SEEK_SET, byte, 1, 0))


def _open(path: Path, beside: Path) -> int:
    if not IS_AVAILABLE:
        raise OSError(errno.ENOSYS, "no locks of open file descriptions")
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        pass
    known = beside.stat()
    mode = sum(rights for may_write, rights in _MAY_WRITE if known.st_mode & may_write)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(file).st_uid == os.geteuid():
            os.fchmod(file, mode | 0o600)  # whatever the umask says
            if os.geteuid() == 0:
                os.fchown(file, known.st_uid, known.st_gid)  # as SQLite does with its log
    except OSError:
        os.close(file)
        raise
    return file


class _Inherited:
    """Closes in a child what its parent had open."""

    def start_afresh(self) -> None:
        """Close every file without unlocking anything: the locks are the parent's."""
        while _OPEN:
            _, file = _OPEN.popitem()
            os.close(file)


_OPEN: dict[int, int] = {}  # file descriptors, by the id of what has opened them
_INHERITED: Final = _Inherited()
start_afresh_in_child(_INHERITED)
