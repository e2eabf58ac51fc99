"""Journal, ledger, leases, replicas, record and facts: protocols, and SQLite behind them."""
