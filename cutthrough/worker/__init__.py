"""One worker process: its life, its data plane, and its answers to operators."""
