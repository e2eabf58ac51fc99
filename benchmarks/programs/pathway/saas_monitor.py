"""The SaaS monitor with Pathway: customers that made documents public, second by second."""

import pathway as pw
from common import read, run


class Shared(pw.Schema):
    """A document was shared."""

    seq: int
    sent_us: int
    at_ms: int
    customer: int
    document: str
    shared_with: str


shared = read("shared", Shared)
public = shared.filter(shared.shared_with == "public")
windows = public.windowby(
    public.at_ms,
    window=pw.temporal.tumbling(duration=1000, origin=0),
    instance=public.customer,
    behavior=pw.temporal.exactly_once_behavior(shift=500),
)
run(
    windows.reduce(
        customer=pw.this._pw_instance,
        window_start_ms=pw.this._pw_window_start,
        documents=pw.reducers.count(),
        newest_ms=pw.reducers.max(pw.this.at_ms),
    )
)
