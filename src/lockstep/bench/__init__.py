"""The figures that Lockstep claims, measured: failover, latency, throughput, the store; and the demo."""
