"""Two inputs of which one goes quiet, with Pathway."""

from common import Event, read, run, sums

run(sums(read("steady", Event).concat_reindex(read("moody", Event)), window_ms=1000, out_of_order_ms=500))
