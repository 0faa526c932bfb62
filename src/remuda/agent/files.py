"""Files of a plan: written, created or removed as the plan says.

A file is replaced as a whole, and only if its content differs; mode and owner are corrected in any case. Paths are
absolute and without `..`. If the host's root is a folder, paths are below it, and no link leads out of it.
"""

from __future__ import annotations

import os

from remuda.agent import AgentError, disk, log
from remuda.agent.plan import DELETE, File

_FILE_MODE = 0o600
_FOLDER_MODE = 0o755


class FileError(AgentError):
    """Error for a file of the plan; the text has its path and the cause."""


def bring(file: File, root: str = "") -> None:
    try:
        if file.action == DELETE:
            _remove(file.path, root)
            return
        path = place(file.path, root)
        mode = _mode(file)
        if file.directory:
            _make_folders(path, mode)
        else:
            _write(path, file.content, mode)
        os.chmod(path, mode)
        _own(path, file.uid, file.gid)
    except OSError as error:
        raise FileError(f"file {file.path!r}: {error.strerror or error}") from None
    except ValueError as error:
        raise FileError(f"file {file.path!r}: {error}") from None


def place(path: str, root: str = "") -> str:
    """Return the real path on this host of a path in a plan. Links are followed, so that their target is changed."""
    if not path:
        raise ValueError("the path is empty")
    if not path.startswith("/"):
        raise ValueError("the path is not absolute")
    if ".." in path.split("/"):
        raise ValueError("the path contains ..")
    if "\0" in path:
        raise ValueError("the path contains a zero byte")
    found = os.path.realpath(os.path.join(root, path.lstrip("/")) if root else path)
    top = os.path.realpath(root) if root else "/"
    if root and found != top and not found.startswith(top + "/"):
        raise ValueError("a link in the path leads out of this host")
    return found


def _mode(file: File) -> int:
    if not file.permissions:
        return _FOLDER_MODE if file.directory else _FILE_MODE
    try:
        mode = int(file.permissions, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777 or file.permissions[:1] in "+-":
        raise ValueError(f"permissions {file.permissions!r} are not octal digits such as 0644")
    return mode


def _write(path: str, content: bytes, mode: int) -> None:
    if os.path.isdir(path):
        raise ValueError("there is a directory of that name")
    if not _holds(path, content):
        _make_folders(os.path.dirname(path), _FOLDER_MODE)
        disk.write(path, content, mode)


def _holds(path: str, content: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size == len(content) and file.read(len(content) + 1) == content
    except FileNotFoundError:
        return False


def _make_folders(path: str, mode: int) -> None:
    """Create a folder and its missing parents with this mode, regardless of the umask."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        os.mkdir(each)
        os.chmod(each, mode)


def _remove(wanted: str, root: str) -> None:
    """Remove a file or folder. A link is removed itself, not its target."""
    place(wanted, root)
    folder, name = os.path.split(wanted.rstrip("/"))
    if name in ("", "."):
        raise ValueError("the root of the host is not removed")
    path = os.path.join(place(folder or "/", root), name)
    if os.path.isdir(path) and not os.path.islink(path):
        disk.remove_tree(path)
    else:
        disk.remove(path)


def _own(path: str, uid: int, gid: int) -> None:
    if os.geteuid() != 0:
        log.once("this agent is not root, so files keep its user as their owner")
        return
    found = os.stat(path)
    if (uid, gid) != (found.st_uid, found.st_gid):
        os.chown(path, uid, gid)
