"""The options: what each is, how a value is read, and where it comes from."""
