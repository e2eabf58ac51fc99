"""Lockstep beside other engines: measured in one run, every result verified. For development; not part of the package.

``python -m benchmarks --help`` (or ``make bench``) from the root of the source tree.
"""
