"""Two inputs in one, with Pathway."""

from common import Event, read, run, sums

run(sums(read("fast", Event).concat_reindex(read("slow", Event)), window_ms=1000, out_of_order_ms=500))
