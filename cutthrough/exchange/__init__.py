"""What captures and recordings share: the content of a message, its bounds, its secrets."""
