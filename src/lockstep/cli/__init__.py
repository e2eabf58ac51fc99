"""The `lockstep` command: one file per subcommand, data on stdout, everything else on stderr."""
