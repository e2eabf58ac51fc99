"""What other systems watch a service with: metrics for Prometheus, rules for alerts, a board for Grafana."""
