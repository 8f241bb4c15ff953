"""What one configuration becomes: policy files, checks, hook and snapshot."""
