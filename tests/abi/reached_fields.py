"""Which fields of the header's structs the API of a binding sets or reads, by its sources.

A word that happens to be a field's name proves nothing: another struct may have it, or a comment. So the reader looks for the two
ways in which an API reaches a field of a struct: NAME.FIELD in a function where NAME is such a struct, and FIELD as a label where
one is made. In C++ people have the structs of C themselves, so a field is reached when a function takes or returns its struct, or
another struct that leads to it.
"""

import re

# How the two ways look, with STRUCT and FIELD for the names.
#   function  where a function begins; its names are known until the next one does
#   names     NAME, as a variable or a parameter of a function
#   members   NAME, as a member that every function of the file sees
#   made      a struct that is made, up to the bracket before its labels
#   label     a label
SHAPES = {
    "python": {
        "function": r"^ *def \w+",
        "names": [r"\b(\w+) = (?:sized\(\s*)?_abi\.STRUCT\b", r"\b(\w+): _abi\.STRUCT\b"],
        "members": [],
        "made": r"\bsized(?=\(\s*_abi\.STRUCT\b)|\b_abi\.STRUCT(?=\()",
        "label": r"\bFIELD_?=(?!=)",
    },
    "rust": {
        "function": r"\bfn \w+",
        "names": [r"\b(\w+) = sys::STRUCT\b", r"\b(\w+): (?:&(?:mut )?|\*(?:const|mut) )?sys::STRUCT\b"],
        "members": [r"^ +(?:pub(?:\(crate\))? )?(\w+): sys::STRUCT,$"],
        "made": r"\bsys::STRUCT (?=\{)",
        "label": r"\bFIELD\b(?=\s*[:,}])",
    },
    "swift": {
        "function": r"\b(?:func \w+|init(?=[(<])|var \w+: \w+ \{)",
        "names": [r"\b(\w+) = STRUCT(?:\.sized)?\(", r"\b(\w+): STRUCT\b"],
        "members": [r"^  (?:let|var) (\w+): STRUCT$"],
        "made": r"\bSTRUCT(?=\()",
        "label": r"\bFIELD:",
    },
}
PAIRS = {"(": ")", "{": "}", "[": "]"}


def without_comments(binding, text):
    if binding == "python":
        text = re.sub(r'"""[\s\S]*?"""', '""', text)
    return re.sub("#.*" if binding == "python" else "//.*", "", text)


def labels(text):
    """What stands between the bracket that text begins with and its partner, without what is in brackets inside."""
    depth, kept = 0, []
    for character in text:
        depth += (character in PAIRS) - (character in PAIRS.values())
        if depth == 0:
            break
        kept.append(character if depth == 1 else "")
    return "".join(kept)[1:] + ","


def fields_of(binding, text, struct):
    """Those that the text of one file, without comments, reaches."""
    shape = SHAPES[binding]

    def pattern(of):
        return re.compile(of.replace("STRUCT", struct["name"]), re.MULTILINE)

    starts = [0, *(match.start() for match in pattern(shape["function"]).finditer(text)), len(text)]
    scopes = [(text[begin:end], shape["names"]) for begin, end in zip(starts, starts[1:])] + [(text, shape["members"])]
    known = [(scope, name) for scope, ways in scopes for way in ways for name in pattern(way).findall(scope)]
    made = [labels(text[match.end() :]) for match in pattern(shape["made"]).finditer(text)]
    for field in (each["name"] for each in struct["fields"]):
        label = shape["label"].replace("FIELD", field)
        if any(re.search(label, each) for each in made) or any(re.search(rf"\b{name}\.{field}_?\b", scope) for scope, name in known):
            yield field


def whole_structs(text, structs):
    """Of C++: those that a function takes or returns, and those that their fields lead to."""
    by_name = {struct["name"]: struct for struct in structs}
    todo = [name for name in by_name if re.search(rf"\b{name}(?:&|>&| \w+\()|vector<{name}>", text)]
    found = set()
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        types = [field["type"] for field in by_name[name]["fields"]]
        types += [param["type"] for each in types if "function" in each for param in each["function"]["params"]]
        todo += [each["base"] for each in types if each.get("base") in by_name]
    return found


def reached(binding, texts, structs):
    """The names STRUCT.FIELD. texts: of the files."""
    texts = [without_comments(binding, text) for text in texts]
    if binding == "c++":
        whole = whole_structs("\n".join(texts), structs)
        return {f"{struct['name']}.{field['name']}" for struct in structs if struct["name"] in whole for field in struct["fields"]}
    naming = ((struct, text) for struct in structs for text in texts if struct["name"] in text)
    return {f"{struct['name']}.{field}" for struct, text in naming for field in fields_of(binding, text, struct)}
