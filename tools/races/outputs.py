"""Files that somebody named: what is there stays unless --force was given, and always where it is no regular file."""
import pathlib


def add_options(parser):
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def opened(path, force):
    """The file, empty and open for text."""
    path = pathlib.Path(path)
    if force and path.is_file() and not path.is_symlink():
        path.unlink()
    try:
        return open(path, "x", encoding="utf-8")
    except FileExistsError:
        why = "--force replaces it" if not force else "it is no regular file"
        raise SystemExit(f"cannot write {path}: it is there already ({why})") from None
