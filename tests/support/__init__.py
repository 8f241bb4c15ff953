"""Real servers and raw clients for black-box tests. Nothing here imports cutthrough."""
