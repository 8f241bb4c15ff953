"""One configuration in force: policy files, checks, hook and snapshot."""
