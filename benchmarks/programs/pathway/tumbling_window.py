"""Keyed tumbling windows with Pathway."""

from common import Event, read, run, sums

run(sums(read("events", Event), window_ms=1000, out_of_order_ms=500))
