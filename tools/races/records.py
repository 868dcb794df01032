"""Records of measurements, one line of JSON each, so that tables and drawings can be made again without measuring."""
import json
import pathlib

import outputs


def add_options(parser):
    outputs.add_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write records, one a line")
    parser.add_argument("--from", dest="source", type=pathlib.Path, metavar="FILE", help="measure nothing, take the records of this file")


def gathered(options, measure):
    """The records of --from, or else the records that measure(keep) gives to keep(). With --json, each record is written at once."""
    if options.source:
        return [json.loads(line) for line in options.source.read_text("utf-8").splitlines()]
    records, file = [], outputs.opened(options.json, options.force) if options.json else None

    def keep(record):
        records.append(record)
        if file:
            file.write(json.dumps(record) + "\n")
            file.flush()

    measure(keep)
    return records
