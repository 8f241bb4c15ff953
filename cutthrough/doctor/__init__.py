"""Checks of the host and of the address floor: `cutthrough doctor`."""
