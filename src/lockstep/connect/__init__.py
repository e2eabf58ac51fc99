"""Sources and sinks: a spec (plain data, part of the plan) and its working side (opens things)."""
