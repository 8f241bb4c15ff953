"""A process of the program: its channel, CPUs, loop, descriptors and environment."""
