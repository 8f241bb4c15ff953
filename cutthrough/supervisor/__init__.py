"""The supervisor: its children, listening sockets, reloads, upgrades, operators."""
