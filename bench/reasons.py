"""Why a target is not met, by the title of its line: printed beside the verdict as long as it is not."""

REASONS: dict[str, str] = {
    "PostgreSQL pair beside sqlalchemy-dlock": "it waits for no disk; ours waits for one flush a pair",
}
