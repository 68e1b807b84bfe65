"""Why a target is not met, by the title of its line: printed beside the verdict as long as it is not."""

REASONS: dict[str, str] = {
    "PostgreSQL pair beside sqlalchemy-dlock": "it keeps nothing on the disk; ours waits for a flush",
}
