"""Filters: the operator's Python functions see and change requests and responses.

No module here knows a socket. `run` drives the filters of one exchange, and an Exchange
carries out their decisions. That of a worker is `session/transfer/filtering.pyx`,
that of unit tests is in `cutthrough.testing`.
"""
