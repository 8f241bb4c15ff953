"""What a connection is made of: its states, its request, its place among others."""
