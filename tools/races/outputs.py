"""Output files that a person named. An existing file stays unless --force is given; anything but a regular file always stays."""
import pathlib


def add_options(parser):
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def opened(path, force):
    """Opens the file, empty, for text."""
    path = pathlib.Path(path)
    if force and path.is_file() and not path.is_symlink():
        path.unlink()
    try:
        return open(path, "x", encoding="utf-8")
    except FileExistsError:
        why = "--force replaces it" if not force else "it is no regular file"
        raise SystemExit(f"cannot write {path}: it is there already ({why})") from None
