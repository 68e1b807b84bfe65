"""What is done for each route: what changes locks, what looks at them, and the server itself."""
