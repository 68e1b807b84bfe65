"""For tests: of programs that use holdfast, and of stores that others write.

- `holdfast.testing.conformance`: the suite that defines a store (needs pytest)
- `holdfast.testing.compare`: random requests, put to two stores whose answers must be equal
- `holdfast.testing.lock_order`: whether a program always takes its locks in the same order
- `holdfast.testing.server`: a lock server inside a test

Nothing here is imported by the rest of holdfast.
"""
