"""The files of one partition of a RocksDB state store: from which a version is rebuilt, and whether they are whole.

7.zip              a base: version 7 as a whole; names the sorted files it needs, which several bases share
SSTs/000012-….sst  sorted files; logs/… likewise
8.changelog        what version 8 changed
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from lockstep.runtime.state.checksums import fault_of

_NUMBERED = re.compile(r"(\d+)\.(zip|changelog)")
NAMED = (("sstFiles", "dfsSstFileName", "SSTs"), ("logFiles", "dfsLogFileName", "logs"))
"""In a base's note: the list of files, the field with a file's name, and the folder it is in."""


def base_of(names: list[str], version: int) -> int:
    """The newest base that ``version`` can be rebuilt from, 0 for none: then all changes from the first one are needed.

    >>> base_of(["4.zip", "5.changelog", "6.changelog", "6.zip"], 5)
    4
    """
    found = (_NUMBERED.fullmatch(name) for name in names)
    return max((int(one[1]) for one in found if one and one[2] == "zip" and int(one[1]) <= version), default=0)


def is_needed(name: str, base: int, version: int) -> bool:
    """Whether a numbered file belongs to the versions from ``base`` to ``version``; half-written files do not.

    >>> [is_needed(name, 4, 5) for name in ("3.changelog", "4.zip", "5.changelog", "6.changelog", "5.changelog.tmp")]
    [False, True, True, False, False]
    """
    found = _NUMBERED.fullmatch(name)
    return found is not None and max(1, base) <= int(found[1]) <= version


def named_by(base: Path) -> list[tuple[Path, int]]:
    """The files that a base needs beside itself, and their sizes."""
    with zipfile.ZipFile(base) as archive:
        note = json.loads(archive.read("metadata").decode().partition("\n")[2])
    return [
        (base.parent / folder / one[field], int(one["sizeBytes"]))
        for files, field, folder in NAMED
        for one in note.get(files) or ()
    ]


def fault_of_version(folder: Path, version: int) -> str | None:
    """What stands in the way of rebuilding a version; None if nothing does."""
    if not folder.is_dir():
        return "its folder is missing"
    base = base_of([path.name for path in folder.iterdir()], version)
    for number in range(base + 1, version + 1):
        if (fault := _fault_of_file(folder / f"{number}.changelog")) is not None:
            return fault
    return _fault_of_base(folder / f"{base}.zip") if base else None


def _fault_of_base(base: Path) -> str | None:
    if (fault := _fault_of_file(base)) is not None:
        return fault
    try:
        named = named_by(base)
    except zipfile.BadZipFile as error:
        return f"{base.name} is not a whole zip file: {error}"
    faults = (_fault_of_file(path, size) for path, size in named)
    return next((fault for fault in faults if fault is not None), None)


def _fault_of_file(path: Path, size: int | None = None) -> str | None:
    if not path.exists():
        return f"{path.name} is missing"
    found = path.stat().st_size
    if found == 0 or (size is not None and found != size):
        return f"{path.name} has {found} bytes" + ("" if size is None else f" instead of {size}")
    return None if (fault := fault_of(path)) is None else f"{path.name} {fault}"
