"""The parts from one configuration: policy files, checks, hook and snapshot."""
