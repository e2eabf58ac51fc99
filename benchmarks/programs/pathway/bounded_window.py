"""Windows over much input at once, with Pathway."""

from common import Event, read, run, sums

run(sums(read("events", Event), window_ms=10_000, out_of_order_ms=2000))
