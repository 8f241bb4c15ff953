"""Filters: the operator's Python functions see and change requests and responses.

No module here knows a socket. `run` drives the filters of one exchange, and an Exchange
carries out their decisions. `session/filtering.pyx` is the Exchange of a worker, and
`cutthrough.testing` has the one of unit tests.
"""
