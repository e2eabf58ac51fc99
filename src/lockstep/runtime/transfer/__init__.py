"""Seeding between hosts: a snapshot is offered on one, and fetched, checked and put in place on another."""
