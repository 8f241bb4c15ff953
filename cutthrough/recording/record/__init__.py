"""Exchanges that become recordings."""
