"""What threaded programs use: signatures, and the code that waits. `holdfast.client.aio` mirrors it."""
