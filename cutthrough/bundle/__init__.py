"""Signed bundles of configuration: their format, their place on disk, their source."""
