"""Bytes between client and origin: requests, responses, tunnels, filters."""
