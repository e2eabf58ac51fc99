"""The simulator of policies: days of load and failures on a virtual clock, decided about by production's own policy."""
