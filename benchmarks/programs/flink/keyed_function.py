"""A Python function with state by key, with PyFlink's DataStream API."""

import json
from heapq import nlargest

from common import EVENT, read, tables, write
from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor


class HighestThree(KeyedProcessFunction):
    """How many amounts a key had so far, and the sum of the three highest."""

    def open(self, context: RuntimeContext) -> None:
        """Name the state."""
        self.state = context.get_state(ValueStateDescriptor("highest", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, _ctx):
        """One more amount."""
        events, best = self.state.value() or (0, [])
        events, best = events + 1, nlargest(3, [*best, value[1]])
        self.state.update((events, best))
        yield json.dumps({"key": value[0], "events": events, "best": sum(best), "seq": value[2]})


t = tables()
read(t, "events", EVENT)
events = t.to_data_stream(t.sql_query("SELECT key, amount, seq FROM events"))
write(events.key_by(lambda event: event[0], Types.STRING()).process(HighestThree(), Types.STRING()))
