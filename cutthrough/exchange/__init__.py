"""What captures and recordings share: content of messages, its bounds, its secrets."""
