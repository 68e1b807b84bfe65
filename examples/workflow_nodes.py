"""Keys for workflows, their nodes and loops, and the resources they share.

Run it: python examples/workflow_nodes.py
"""

import tempfile

from holdfast import Holdfast, keys


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Holdfast(f"sqlite:///{folder}/locks.db") as locks:
        with (
            locks.hold(keys.workflow(123)),
            locks.hold(keys.node(123, "fetch-calendars")),
            locks.hold(keys.iteration(123, "delete-loop", 5)),
            locks.hold(keys.resource("database", "calendar_db")),
        ):
            print("held now:")
            for view in locks.list(state="held"):
                print(f"  {view.key:32} {keys.parse(view.key).fields}")

            print("nodes of workflow 123:", [view.key for view in locks.list(prefix="node:123:")])
            print("all resources:        ", [view.key for view in locks.list(type="resource")])

        # Parts are escaped, so different parts never meet in one key, and come back as they were.
        tricky = keys.node("a:b", "c")
        assert tricky != keys.node("a", "b:c")
        print("escaped:", tricky, "→", keys.parse(tricky).parts)


if __name__ == "__main__":
    main()
