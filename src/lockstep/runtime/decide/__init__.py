"""What a replica concludes, as pure functions of what is known and a passed-in time: also in the simulator."""
