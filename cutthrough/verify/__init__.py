"""Password hashes: the queue, the back-off, and the processes that compute them."""
