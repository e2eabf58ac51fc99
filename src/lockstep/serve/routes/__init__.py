"""The routes of the service, a module for each family. Each has a ``routes(service)`` that the app mounts."""
