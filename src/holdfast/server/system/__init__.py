"""The server itself: what it is, how it is, who may use it; log and figures."""
