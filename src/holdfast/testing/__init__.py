"""For tests: of programs that use holdfast, and of stores that others write.

- `holdfast.testing.conformance`: the suite that defines a store (needs pytest)
- `holdfast.testing.compare`: random requests, put to two stores whose answers must be equal

Nothing here is imported by the rest of holdfast.
"""
