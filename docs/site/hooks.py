"""What MkDocs cannot: the pages lie where their readers on a code host expect them, and they link to sources. Each Markdown file of the
project is a page under its own path, each other file that one links to is a page with its text, and reference.py writes the rest."""

import functools
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File, InclusionLevel

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import reference  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "examples", "bindings", "packaging", "tests")  # what has pages
LANGUAGES = {".h": "c", ".hpp": "c++", ".c": "c", ".cc": "c++", ".inc": "c++", ".m": "objc", ".mm": "objc", ".py": "python", ".rs": "rust",
             ".swift": "swift", ".sh": "sh", ".yml": "yaml", ".cmake": "cmake", ".metal": "c++", ".cu": "c++", ".rb": "ruby"}
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(`[^`\n]*`)|\]\(([^)\s]+)\)")


@functools.cache
def pages():
    found = [*TOP.glob("*.md"), *(path for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.md")))]
    return [str(path.relative_to(TOP)) for path in found if path.parent.resolve() == path.parent and "/." not in str(path.relative_to(TOP))]


def outside_fences(text, change):
    """The text, changed everywhere but in blocks of code."""
    at, parts = 0, []
    for fence in FENCE.finditer(text):
        parts += [change(text[at:fence.start()]), fence.group()]
        at = fence.end()
    return "".join([*parts, change(text[at:])])


def target(page, link):
    """The path in the project that a relative link of a page names, or None."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def place(page, link):
    """The same link as the site has it: a source is the page of this source, a folder its README."""
    path, mark, anchor = link.partition("#")
    there = target(page, link)
    if there is None or not (TOP / there).exists() or there.endswith((".md", ".svg")):
        return link
    if (TOP / there).is_dir():
        return posixpath.join(path, "README.md") if (TOP / there / "README.md").exists() else link
    return f"{path}.md{mark}{anchor}"


def on_config(config):
    config.nav = [{"Reference": reference.nav()} if "Reference" in each else each for each in config.nav]
    return config


def on_files(files, config):
    linked = set()
    for path in pages():
        files.append(File.generated(config, path, abs_src_path=str(TOP / path)))
        outside_fences((TOP / path).read_text(), lambda text, path=path: linked.update(target(path, each[1]) for each in LINK.findall(text)) or "")
    for path in sorted(each for each in linked if each and (TOP / each).is_file() and not each.endswith(".md")):
        if path.endswith(".svg"):
            files.append(File.generated(config, path, abs_src_path=str(TOP / path)))
        else:
            text = (TOP / path).read_text()
            language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
            text = f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n~~~~{language}\n{text}~~~~\n"
            # INCLUDED: else MkDocs leaves out what begins with a dot.
            files.append(File.generated(config, f"{path}.md", content=text, inclusion=InclusionLevel.INCLUDED))
    for path, text in reference.pages():
        files.append(File.generated(config, path, content=text))
    for file in sorted((TOP / "build/docs/rust/doc").rglob("*")):
        if file.is_file():
            files.append(File.generated(config, f"rust/{file.relative_to(TOP / 'build/docs/rust/doc')}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown, page, config, files):
    def change(text):
        text = LINK.sub(lambda match: match[1] or f"]({place(page.file.src_uri, match[2])})", text)
        text = re.sub(r"^ +", lambda indent: indent[0] * 2, text, flags=re.MULTILINE)  # Python-Markdown nests by four columns
        return re.sub(r"^((?![-|\s>]|\d+\.).+)\n(?=(?:- |\d+\. ))", r"\1\n\n", text, flags=re.MULTILINE)  # it wants a line before a list

    return markdown if page.file.src_uri.startswith("reference/") else outside_fences(markdown, change)
