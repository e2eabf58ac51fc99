"""The first thing that a replica's or a spare's process does: boot the JVM, then load everything else beside it.

``python -m lockstep.runtime.start replica|spare SPEC``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lockstep.credentials import RedactedStream, hide_secrets
from lockstep.runtime.spark.boot import boot


def main() -> None:
    """Boot, then become what was asked for."""
    what, path = sys.argv[1:3]
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    hide_secrets(spec["jvm_conf"])
    sys.stderr = RedactedStream(sys.stderr)
    if spec["jvm"]:
        boot(spec["jvm"], Path(path).parent, spec["jvm_conf"], starved=what == "spare")
    if what == "spare":
        from lockstep.runtime import spare

        spare.main([path])
    else:
        from lockstep.runtime import replica

        replica.main([path])


if __name__ == "__main__":
    main()
