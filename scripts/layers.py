"""Checks that each layer imports only those below it; the contract is in pyproject.toml. Silent when it holds."""

from __future__ import annotations

import contextlib
import io
import sys

from importlinter.cli import lint_imports


def main() -> int:
    """The exit code: 0 if the layers hold; otherwise the broken chains have been printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = lint_imports(no_cache=True)
    if code != 0:
        sys.stdout.write(said.getvalue())
    return code


if __name__ == "__main__":
    sys.exit(main())
