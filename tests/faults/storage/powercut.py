"""A disk that forgets: an SQLite VFS that keeps what was synced and, at a power cut, loses the rest.

The files work as usual while the power is on. Beside each the machine keeps its *durable* content and the writes since
its last sync. `cut_at` sets the number of the disk operation at which the power goes; at that moment it fixes what a
machine would find after it, and every later operation fails. What it finds of the unsynced writes is chosen per file
by the seed: nothing, some of them in any combination, or some torn at sector boundaries. A file whose directory entry
was not synced may be missing altogether, one whose deletion was not synced may be back. The WAL's index (-shm) is not
state: it comes back as garbage.

`failure_rate` makes operations fail while the power is on. A sync that fails may already have written some of the data
and have dropped the rest for good, as Linux does: the files still show it, but no later sync brings it to disk.

Limits: a directory is synced when SQLite first syncs a new journal or WAL in it, as its Unix VFS does; syncs the store
itself makes of its directory happen before any of its files matter.
"""

from __future__ import annotations

import random
from pathlib import Path

import apsw

_SECTOR = 512


class PowerIsOff(apsw.IOError):
    """Any disk operation after the cut."""


class _Image:
    """What the disk holds of one file."""

    def __init__(self, durable: bytes, *, linked: bool) -> None:
        self.durable = bytearray(durable)
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, data), or (size, None) for a truncation
        self.linked = linked  # its directory entry is durable
        self.deleted = False

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.durable, *operation)
        self.pending.clear()

    def fail_sync(self, rng: random.Random) -> None:
        for operation in self.pending:
            if rng.random() < 0.5:
                _apply(self.durable, *operation)
        self.pending.clear()

    def after_cut(self, rng: random.Random) -> bytes | None:
        """The content found after the cut; None: no such file."""
        if (self.deleted or not self.linked) and rng.random() < 0.5:
            return None
        content = bytearray(self.durable)
        mode = rng.choice(("drop", "some", "torn"))
        for offset, data in self.pending if mode != "drop" else ():
            if rng.random() < 0.5:
                _apply(content, offset, _tear(data, rng) if mode == "torn" and data is not None else data)
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
    else:
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


def _tear(data: bytes, rng: random.Random) -> bytes:
    """The first sectors of a write."""
    return data[: rng.randrange(0, len(data) + _SECTOR, _SECTOR)]


class Machine(apsw.VFS):
    """One life of a machine, from power on to the cut. `name` is what to open databases with."""

    def __init__(self, name: str, rng: random.Random, *, failure_rate: float = 0.0) -> None:
        super().__init__(name, "")
        self._failure_rate = failure_rate
        self.name = name
        self.operations = 0
        self.is_off = False
        self.rng = rng
        self._cut_at = 0
        self._images: dict[str, _Image] = {}
        self._found: dict[str, bytes] = {}

    def cut_at(self, operation: int) -> None:
        self._cut_at = operation

    def cut(self) -> None:
        """The power goes now."""
        if not self.is_off:
            found = {path: image.after_cut(self.rng) for path, image in self._images.items()}
            self._found = {path: content for path, content in found.items() if content is not None}
            self.is_off = True

    def leave(self, home: Path) -> None:
        """Writes what the machine finds after the cut into a new directory. Its memory is empty then: an error that was
        logged holds on to whoever was there, and a campaign has hundreds of machines with logs of many megabytes."""
        home.mkdir()
        for path, content in self._found.items():
            (home / Path(path).name).write_bytes(content)
        self._found.clear()
        self._images.clear()
        if self.rng.random() < 0.5:
            (home / "state.db-shm").write_bytes(self.rng.randbytes(32768))

    def step(self) -> None:
        """Every operation on the disk passes here."""
        self.operations += 1
        if self.operations == self._cut_at:
            self.cut()
        if self.is_off:
            raise PowerIsOff("the power is off")
        if self._failure_rate and self.rng.random() < self._failure_rate:
            raise apsw.IOError("the disk refuses")

    def image(self, path: str) -> _Image:
        return self._images[path]

    def sync_directory(self) -> None:
        for path, image in list(self._images.items()):
            image.linked = True
            if image.deleted:
                del self._images[path]

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        exists = Path(path).exists()
        opened = _File(self, path, name, flags)
        known = self._images.get(path)
        if known is None or known.deleted:
            self._images[path] = _Image(Path(path).read_bytes() if exists else b"", linked=exists)
        return opened

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.step()
        super().xDelete(filename, syncdir)
        if filename in self._images:
            self._images[filename].deleted = True
        if syncdir:
            self.sync_directory()


class _File(apsw.VFSFile):
    def __init__(self, machine: Machine, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._machine = machine
        self._path = path
        self._syncs_directory = not path.endswith(".db")

    def xWrite(self, data: bytes, offset: int) -> None:
        self._machine.step()
        super().xWrite(data, offset)
        self._machine.image(self._path).pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        self._machine.step()
        super().xTruncate(newsize)
        self._machine.image(self._path).pending.append((newsize, None))

    def xSync(self, flags: int) -> None:
        try:
            self._machine.step()
        except apsw.IOError:
            if not self._machine.is_off:
                self._machine.image(self._path).fail_sync(self._machine.rng)
            raise
        # The file below is not synced for real: this disk's memory is the machine, not the hardware.
        self._machine.image(self._path).sync()
        if self._syncs_directory:
            self._machine.sync_directory()
            self._syncs_directory = False
