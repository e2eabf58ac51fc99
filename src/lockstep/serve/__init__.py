"""A service around jobs: submit them, look at them and change them over HTTP, with a client for Python."""
