"""Job, Stream, KeyedStream, WindowedStream: the fluent surface over the plan."""
