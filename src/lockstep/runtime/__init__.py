"""One replica: follow the ledger, run the epoch, publish."""
