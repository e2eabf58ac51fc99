"""Logins of twenty users as JSON lines, ten a second until Ctrl-C; one of them cannot remember a password."""

import json
import random
import time
from datetime import UTC, datetime

FORGETFUL = "user-13"

try:
    while True:
        user = random.choice([*(f"user-{number}" for number in range(20)), FORGETFUL, FORGETFUL])
        ok = user != FORGETFUL and random.random() < 0.95
        print(json.dumps({"user": user, "ok": ok, "at": datetime.now(UTC).isoformat()}), flush=True)
        time.sleep(0.1)
except (KeyboardInterrupt, BrokenPipeError):
    raise SystemExit(0) from None
