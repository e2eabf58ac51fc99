"""The life of a sealed epoch in a replica, as production and the simulator both take it."""

from __future__ import annotations

BEGIN, RUN, DIGEST, PUBLISH, FINISH = EPOCH_STEPS = ("begin", "run", "digest", "publish", "finish")
"""Note that it has begun; compute it; note what came out; publish it to each sink unless somebody has; note that it is
done. Only then does Spark commit it: what is before the commit is done again after a crash, what is after never is."""
