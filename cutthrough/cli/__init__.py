"""The command line: `cutthrough serve | check | config | explain …`."""
