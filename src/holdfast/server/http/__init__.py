"""A small HTTP/1.1 server on asyncio and httptools: requests in, answers and open-ended streams out.

It knows nothing of locks. `message` has what a handler sees, `listener` is the way in; decision 0022 tells
why it is not one of the well-known ones.
"""
