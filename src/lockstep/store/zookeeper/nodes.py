"""What stands in nodes: JSON, packed where it is large; and names of anything as names of nodes."""

from __future__ import annotations

import json
import zlib
from typing import Any
from urllib.parse import quote, unquote

PACKED_FROM_BYTES = 4_096
"""Below this a value is left readable: `get` of ZooKeeper's own shell shows it."""


def packed(value: object) -> bytes:
    """A value as a node keeps it.

    >>> packed({"a": 1}), len(packed(["x"] * 100_000)) < 1000
    (b'{"a": 1}', True)
    """
    text = json.dumps(value, default=dict, sort_keys=True).encode()
    return text if len(text) < PACKED_FROM_BYTES else zlib.compress(text, 6)


def unpacked(body: bytes) -> Any:
    """What :func:`packed` was given.

    >>> unpacked(packed({"a": ["x"] * 100_000})) == {"a": ["x"] * 100_000}
    True
    """
    # JSON never begins with the "x" that a zlib stream begins with.
    return json.loads(zlib.decompress(body) if body.startswith(b"x") else body)


def node_name(text: str) -> str:
    """Any text as the name of one node.

    >>> node_name("journal-floor:a/b"), named(node_name("a/b."))
    ('journal-floor%3Aa%2Fb', 'a/b.')
    """
    return quote(text, safe="").replace(".", "%2E") or "%"


def named(name: str) -> str:
    """What :func:`node_name` was given."""
    return "" if name == "%" else unquote(name)
