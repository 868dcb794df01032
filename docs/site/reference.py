"""The pages of the reference: of C from the header and its table (tests/abi/abi_table.py), a page per function and struct, with examples
from the programs of examples/, which a suite compiles; of Python from docstrings; of Swift from its comments; of Rust what cargo doc made."""

import ast
import functools
import json
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADER = TOP / "include/metal_marlin/metal_marlin.h"
EXAMPLES = [TOP / f"examples/{name}" for name in ("tour.c", "mlp.c", "host.c", "plugin.c")]

# What a parameter is, by its type and name; a new one needs a line.
PARAMETERS = {
    "marlin_error* err": "The caller's. The function fills it only if it fails. May be NULL.",
    "marlin_context* context": "The device that is to work. Not NULL.",
    "marlin_stream* stream": "The stream that takes the work. NULL: in the context of the weights, done on return.",
    "marlin_buffer* buffer": "A buffer.",
    "const marlin_weights* weights": "Packed weights. Not NULL.",
    "const marlin_checkpoint* checkpoint": "An open checkpoint. Not NULL.",
    "const char* path": "UTF-8, NUL-terminated: a file or a folder.",
    "const char* out_path": "UTF-8, NUL-terminated: the file or the folder to write.",
    "const char* name": "UTF-8, NUL-terminated: the name of a tensor.",
    "const char* key": "UTF-8, NUL-terminated: the key.",
    "uint32_t index": "From 0 on.",
    "uint64_t index": "From 0 on.",
    "uint64_t bytes": "The size in bytes.",
    "uint64_t timeout_ns": "In nanoseconds.",
    "uint32_t part_count": "The number of parts.",
    "uint32_t expert_count": "The number of experts; 0 means 1.",
    "uint32_t count": "The number of products; 0 does nothing.",
    "int64_t first_row": "The first row of W to decode, if there are no row_ids.",
    "int64_t max_m": "The most rows of A (with experts: tokens) of a later call.",
    "uint64_t* scratch_bytes": "Filled, in bytes. May be NULL.",
    "const marlin_matrix* row_ids": "The rows of W to decode, [T, 1] I32, or NULL.",
    "const marlin_matrix* out": "Where the rows go, [T, K].",
    "char* text": "Filled and NUL-terminated; may be NULL if capacity is 0.",
    "size_t capacity": "The size of text in bytes.",
    "size_t* needed": "Filled with the size of the whole text in bytes. May be NULL.",
    "marlin_status status": "Any value.",
    "const marlin_value* array": "A value of kind ARRAY whose elements are STRING.",
    "const char** text": "NULL inside: the first string; else the string of the call before.",
    "uint64_t* bytes": "The length of the string in bytes, in and out.",
    "void (*done)(void* user, marlin_status status)": "Called once, when the work so far has ended.",
    "void* user": "Given to the callback.",
    "uint32_t abi_major": "MARLIN_ABI_MAJOR of the header that the caller was compiled with.",
}
# Of a field without words of its own.
FIELDS = {"struct_size": "The size of the struct that the caller was compiled with, in bytes.", "reserved": "0.", "flags": "0, or flags of this struct."}
THREADS = {
    "destroy": "No other thread may use the handle, during the call and after it.",
    "stream": "A stream serves one thread at a time, and may move between threads. Other handles may be in use by any number of threads.",
    "else": "Any number of threads may call it at once, also with the same handles.",
}


@functools.cache
def table():
    return json.loads((TOP / "build/docs/abi_table.json").read_text())


@functools.cache
def places():
    """The page and the anchor of each name, from reference/c on."""
    found = {each["name"]: f"{each['name']}.md" for part in ("functions", "structs") for each in table()[part]}
    found |= {each["name"]: f"constants.md#{each['name']}" for part in ("constants", "types", "handles") for each in table()[part]}
    return found


def prose(text, itself=""):
    """Words of the header as Markdown: its names are links."""
    text = re.sub(r"([\\*_<>\[\]|])", lambda mark: {"<": "&lt;", ">": "&gt;"}.get(mark[0], f"\\{mark[0]}"), text).replace(r"\_", "_")

    def link(match):
        name = match[0].partition("::")[0]
        known = name in places() and name != itself
        return f"[`{match[0]}`]({places()[name]})" if known else f"`{match[0]}`"

    return re.sub(r"\b(?:marlin_[a-z0-9_]+(?:::\w+)?|MARLIN_[A-Z0-9_]+)\b", link, text).replace("\n", " ")


def declared(type_, name=""):
    """A type of the table, as C writes it."""
    if "function" in type_:
        params = ", ".join(declared(each["type"], each["name"]) for each in type_["function"]["params"])
        return f"{declared(type_['function']['returns'])} (*{name})({params})"
    text, const = type_["base"], ""
    for i, pointer in enumerate(type_["pointers"]):
        text = f"const {text}*" if pointer == "const" and i == 0 else f"{text} const*" if pointer == "const" else f"{text}*"
    return f"{text} {name}".strip() + const


def spelled(parameter):
    return declared(parameter["type"], parameter["name"]).replace(" const*", " const*")


def link_of(type_):
    name = type_.get("base", "")
    return f"[`{declared(type_)}`]({places()[name]})" if name in places() else f"`{declared(type_)}`"


@functools.cache
def functions_of(path):
    """The functions of an example: (the first line's number, the text with the comment above)."""
    return [(path.read_text()[:m.start()].count("\n") + 1, m[0])
            for m in re.finditer(r"^(?:/\*(?:(?!\*/)[\s\S])*\*/\n)?(?:static |int )[^;{}=]*\{\n[\s\S]*?^\}\n", path.read_text(), re.MULTILINE)]


def example(name, and_then=""):
    """The shortest function of the examples that uses a name, or a pointer to where there is one."""
    used = [(len(text), path, line, text) for path in EXAMPLES for line, text in functions_of(path) if re.search(rf"\b{name}\b", text)]
    if not used:
        return and_then
    _, path, line, text = min(used, key=lambda each: (each[0], each[1]))
    return (f"## Example\n\nFrom [{path.relative_to(TOP)}](../../{path.relative_to(TOP)}.md), line {line}, which the tests compile and run:\n\n"
            f"```c\n{text}```\n")


def errors(function):
    """(status, why) of each status that the words of a function name, and of those that its parameters imply."""
    sentences = re.split(r"(?<=\.) |; ", function["doc"])
    found = {status: next(each for each in sentences if status in each) for status in dict.fromkeys(re.findall(r"MARLIN_E_\w+", function["doc"]))}
    found.setdefault("MARLIN_E_ARGUMENT", "A parameter that must not be NULL is NULL, or a handle is of another kind.")
    structs = [each["type"].get("base", "") for each in function["params"]]
    grow = [each for each in table()["structs"] if each["name"] in structs and each["fields"][0]["name"] == "struct_size"]
    if grow:
        found.setdefault("MARLIN_E_STRUCT_SIZE", f"struct_size of {' or '.join(each['name'] for each in grow)} is no size of any version.")
    return found.items()


def meaning(function, parameter):
    name, doc = parameter["name"], function["doc"]
    base = parameter["type"].get("base", "")
    if name == "stream" and re.search("_(flush|wait|notify|destroy)$", function["name"]):
        return "The stream. " + ("NULL does nothing." if "destroy" in function["name"] else "Not NULL.")
    if function["name"].endswith("_destroy"):
        return "The handle; NULL does nothing."
    if name == "out" and len(parameter["type"]["pointers"]) == 2:
        return f"The new handle, or NULL if the function fails. {prose(base.replace('marlin_', 'marlin_') + '_destroy')} ends it."
    if name == "out" and parameter["type"]["pointers"] == ["mut"]:
        return f"Filled: {link_of({'base': base, 'pointers': []})}."
    if name in ("desc", "descs", "parts"):
        return f"{'An array of pointers to' if name != 'desc' else 'A'} {link_of({'base': base, 'pointers': []})}." + (
            " May be NULL." if "desc NULL" in doc else " Not NULL.")
    return prose(PARAMETERS[spelled(parameter)])


def function_page(function):
    name, params = function["name"], function["params"]
    head = ",\n    ".join(spelled(each) for each in params) or "void"
    described = [each["doc"] for each in table()["structs"] if each["name"] in [p["type"].get("base") for p in params]]
    doc = prose(function["doc"] or next(filter(None, described), ""), name) or "See [the rules of all functions](index.md)."
    kind = "destroy" if name.endswith("_destroy") else "stream" if any(each["name"] == "stream" for each in params) else "else"
    text = f"# {name}\n\n```c\n{declared(function['returns'], name)}(\n    {head});\n```\n\n{doc}\n\n"
    if params:
        rows = "".join(f"| `{each['name']}`<br>{link_of(each['type'])} | {meaning(function, each)} |\n" for each in params)
        text += f"## Parameters\n\n| | |\n|---|---|\n{rows}\n"
    if function["returns"]["base"] == "marlin_status":
        rows = "".join(f"| {prose(status)} | {prose(why, name)} |\n" for status, why in errors(function))
        text += ("## Errors\n\nIt returns `MARLIN_OK`, or one of these and those that [the rules](index.md) and the fields of its structs name:\n\n"
                 f"| status | when |\n|---|---|\n{rows}\n")
    return text + f"## Threads\n\n{THREADS[kind]}\n\n{example(name)}"


def struct_page(struct):
    name = struct["name"]
    types = {each["name"]: each["doc"] for each in table()["types"]}
    rows = "".join(f"| `{each['name']}{'[%d]' % each['array'] if 'array' in each else ''}`<br>{link_of(each['type'])}, at {each['offset']} | "
                   f"{prose(each['doc'] or FIELDS.get(each['name']) or types.get(each['type'].get('base'), ''), name)} |\n" for each in struct["fields"])
    users = [each["name"] for each in table()["functions"] if any(p["type"].get("base") == name for p in each["params"])]
    users += [each["name"] for each in table()["structs"] if each is not struct and any(
        f"{name}" in json.dumps(field["type"]) for field in each["fields"]) and each["name"] != "marlin_api"]
    used = ", ".join(f"[`{each}`]({places()[each]})" for each in users)
    return (f"# {name}\n\n{prose(struct['doc'], name)}\n\nIt has {struct['size']} bytes. Used by: {used or 'marlin_get_api'}.\n\n"
            f"## Fields\n\n| type, offset in bytes | |\n|---|---|\n{rows}\n"
            "## Threads\n\nA struct belongs to its caller. The library copies what it needs before the call returns.\n\n" + example(name))


def constants_page():
    text = "# Constants, types and handles\n\nA program must expect values that it does not know.\n\n## Handles\n\n"
    text += "".join(f"- <span id='{each['name']}'></span>`{each['name']}`: {prose(each['doc'])}\n" for each in table()["handles"])
    groups = {}
    for each in table()["constants"]:
        prefix = re.match("MARLIN_[A-Z0-9]+", each["name"])[0]
        groups.setdefault(f"{prefix}_..." if each["type"] == "uint32_t" else each["type"], []).append(each)
    docs = {each["name"]: each["doc"] for each in table()["types"]}
    for group, members in groups.items():
        text += f"\n## {group}\n\n"
        text += f"{prose(docs.get(group, ''))}\n\n| name | value | |\n|---|---|---|\n"
        text += "".join(f"| <span id='{each['name']}'></span>`{each['name']}` | {each['value']} | {prose(each['doc'])} |\n" for each in members)
    return text


def index_page():
    """The rules at the head of the header, and its functions under its own headings."""
    source = HEADER.read_text()
    head = "\n".join(line.removeprefix(" *").removeprefix(" ") for line in source[:source.index("*/")].splitlines()[1:])
    sections = re.split(r"\n([A-Z][A-Z -]+)\n", head)
    text = "# C\n\n[The header](../../include/metal_marlin/metal_marlin.h.md) is the whole interface. It has these functions:\n\n"
    for title, body in re.findall(r"^/\* --- (.+?) -+ \*/\n(.*?)(?=^/\* ---|\Z)", source, re.MULTILINE | re.DOTALL):
        names = re.findall(r"^MARLIN_EXPORT [^(]*\b(marlin_\w+)\(", body, re.MULTILINE)
        text += f"- {prose(title)}: {', '.join(f'[`{name}`]({name}.md)' for name in names)}\n" if names else ""
    structs = ", ".join(f"[`{each['name']}`]({each['name']}.md)" for each in table()["structs"])
    text += f"- structs: {structs}\n- [constants, types and handles](constants.md)\n\nThese rules hold for every function.\n"
    for title, body in zip(sections[1::2], sections[2::2]):
        text += f"\n## {title.capitalize()}\n\n{prose(body)}\n"
    return text


def docstring(text):
    """Paragraphs of words, and tables of "name  words", whose further lines are indented."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        rows = [[]]
        for line in paragraph.splitlines():
            row = re.match(r"(\S.*?) {2,}(\S.*)", line)
            rows += [[f"`{row[1]}`", row[2]]] if row else []
            rows[-1] += [] if row else [line.strip()]
        escaped = [re.sub(r"([*_<\[|])(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", " ".join(words)) for words in rows if words and words[0][0] != "`" or len(words) == 1]
        table = [words for words in rows if len(words) > 1 and words[0][0] == "`"]
        parts += escaped
        if table:
            parts.append("\n".join(["| | |", "|---|---|", *(f"| {words[0]} | {' '.join(words[1:]).replace('|', chr(92) + '|')} |" for words in table)]))
    return "\n\n".join(parts) + "\n\n"


def python_page():
    package = TOP / "bindings/python/metal_marlin"
    text = "# Python\n\n[How to install and use it](../bindings/python/README.md). These are the words of `help()`.\n\n"
    public = ast.literal_eval(next(each.value for each in ast.parse((package / "__init__.py").read_text()).body
                                   if isinstance(each, ast.Assign) and each.targets[0].id == "__all__"))
    for path in sorted(package.glob("[a-z]*.py")):
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, (ast.ClassDef, ast.FunctionDef)) and (each.name in public or (path.name == "torch.py" and each.name[0] != "_")):
                text += python_item(each, f"{'torch.' if path.name == 'torch.py' else ''}{each.name}", "##")
    return text


def python_item(node, name, level):
    words = ast.get_docstring(node)
    head = f"({ast.unparse(node.args)})" if isinstance(node, ast.FunctionDef) else ""
    text = f"{level} {name}\n\n" + (f"```python\n{name}{head}\n```\n\n" if head else "") + (docstring(words) if words else "")
    for each in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(each, ast.FunctionDef) and each.name[0] != "_" and ast.get_docstring(each):
            text += python_item(each, f"{name}.{each.name}", "###")
    return text


def declaration(source):
    """The first declaration of a source, without its body."""
    depth = 0
    for i, letter in enumerate(source):
        depth += (letter in "([") - (letter in ")]")
        if letter in "{=\n" and depth == 0:
            return re.sub(r"\s+", " ", source[:i].strip())
    return source


def swift_page():
    """Public declarations with their comments. On a Mac, Xcode shows the same with DocC."""
    text = "# Swift\n\n[How to install and use it](../bindings/swift/README.md). `swift package` and Xcode make a DocC archive of the same words.\n\n"
    for path in sorted((TOP / "bindings/swift/Sources/MetalMarlin").glob("*.swift")):
        source = path.read_text()
        found = list(re.finditer(r"((?:^ *///.*\n)+)(?:^ *@.*\n)*(?=^ *public )", source, re.MULTILINE))
        text += f"## {path.stem}\n\n" if found else ""
        for match in found:
            said = re.sub(r"^ *///? ?", "", match[1], flags=re.MULTILINE).replace("``", "`")
            text += f"```swift\n{declaration(source[match.end():])}\n```\n\n{docstring(said)}"
    return text


def rust_page():
    made = (TOP / "build/docs/rust/doc/metal_marlin/index.html").exists()
    where = ("[metal_marlin](../rust/metal_marlin/index.html) and [metal_marlin_sys](../rust/metal_marlin_sys/index.html), as `cargo doc` made them."
             if made else "This site was built without cargo. `cargo doc --open` in `bindings/rust` shows the reference.")
    return f"# Rust\n\n[How to use the crates](../bindings/rust/README.md). {where}\n"


def nav():
    names = lambda part: [{each["name"].removeprefix("marlin_"): f"reference/c/{each['name']}.md"} for each in table()[part]]
    return [{"C": ["reference/c/index.md", {"Functions": names("functions")}, {"Structs": names("structs")}, {"Constants": "reference/c/constants.md"}]},
            {"C++": "include/metal_marlin/metal_marlin.hpp.md"}, {"Rust": "reference/rust.md"}, {"Swift": "reference/swift.md"},
            {"Python": "reference/python.md"}]


def pages():
    for part, page in (("functions", function_page), ("structs", struct_page)):
        yield from ((f"reference/c/{each['name']}.md", page(each)) for each in table()[part])
    for name, page in (("c/index", index_page), ("c/constants", constants_page), ("python", python_page), ("swift", swift_page), ("rust", rust_page)):
        yield f"reference/{name}.md", page()
