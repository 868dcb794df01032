"""Records of measurements, one line of JSON each, so that tables and drawings can be made again without measuring."""
import json
import pathlib


def add_options(parser):
    parser.add_argument("--force", action="store_true", help="replace files that are there")
    parser.add_argument("--json", metavar="FILE", help="write records, one a line")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE", help="measure nothing, take the records of this file")


def opened(path, force):
    """Opens the file, empty, for text. One that is there stays unless `force`; anything but a regular file always stays."""
    path = pathlib.Path(path)
    if force and path.is_file() and not path.is_symlink():
        path.unlink()
    try:
        return open(path, "x", encoding="utf-8")
    except FileExistsError:
        why = "--force replaces it" if not force else "it is no regular file"
        raise SystemExit(f"cannot write {path}: it is there already ({why})") from None


def gathered(options, measure):
    """The records of --from, or else the records that measure(keep) gives to keep(). With --json, each record is written at once."""
    if options.source:
        return [json.loads(line) for line in options.source.read_text("utf-8").splitlines()]
    records, file = [], opened(options.json, options.force) if options.json else None

    def keep(record):
        records.append(record)
        if file:
            file.write(json.dumps(record) + "\n")
            file.flush()

    measure(keep)
    return records
