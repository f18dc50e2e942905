"""One user of an embedded PostgreSQL as a process of its own; `argv[1]` holds its options as JSON.

Prints where the server is, then leaves when its standard input says so or ends.
"""

import encodings.idna  # noqa: F401 - an ordinary account may be unable to read the interpreter's files later
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from philorag.storage.embedded import EmbeddedPostgres, _places


def become(uid: int) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def main() -> None:
    options = json.loads(sys.argv[1])
    if options.get("uid"):
        become(options["uid"])
    if "service_root" in options:
        _places.SERVICE_ROOT = Path(options["service_root"])
    bin_dir = Path(options["bin_dir"]) if "bin_dir" in options else None
    database = EmbeddedPostgres(Path(options["home"]), settings={"fsync": "off"}, bin_dir=bin_dir)
    parameters = asdict(database.start())
    where = {"pid": database.pid, "storage": str(database.storage), "bin_dir": str(database.bin_dir)}
    print(json.dumps({"parameters": parameters, **where}), flush=True)  # noqa: T201 - the protocol
    sys.stdin.readline()


if __name__ == "__main__":
    main()
