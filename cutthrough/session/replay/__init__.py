"""Replays: their phase, a request that the player has, and the answers in memory."""
