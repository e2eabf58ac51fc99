"""Writes docs/reference: one page for each public class, one for all functions, made from signatures and docstrings.

``make reference`` runs it; a test fails while the pages are not what it would write.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import tempfile
import textwrap
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PACKAGES = {"lockstep": "ls", "lockstep.testing": "lockstep.testing", "lockstep.typing": "lockstep.typing"}
"""The packages whose names are public, and what people write before the names."""
HANDED = "lockstep.typing"
"""The package of what users are handed: nobody makes it by hand, so how it is made is not shown."""
NOTE = "<!-- Made by scripts/reference.py from the docstrings: change those, then `make reference`. -->"
_LINE_MAX = 100
_ROLE = re.compile(r":(?:func|class|meth|data|mod|attr|exc):`~?([^`]+)`")


def pages() -> dict[str, str]:
    """Every page by its file name."""
    made: dict[str, str] = {}
    index = [
        "# Reference",
        "",
        "Everything public, from the docstrings. The [guide](../guide/README.md) explains it.",
        "",
    ]
    for package, prefix in PACKAGES.items():
        names = _public(package)
        functions = {name: value for name, value in names.items() if not inspect.isclass(value)}
        classes = {name: value for name, value in names.items() if inspect.isclass(value)}
        page = f"{package.removeprefix('lockstep.').replace('lockstep', 'functions')}.md"
        made[page] = _functions_page(package, prefix, functions)
        made |= {f"{name}.md": _class_page(name, value, prefix) for name, value in classes.items()}
        index += [f"## `{package}`", "", "| name | |", "|---|---|"]
        for name, value in names.items():
            link = f"{name}.md" if name in classes else f"{page}#{_anchor(name)}"
            index.append(f"| [`{prefix}.{name}`]({link}) | {_first_line(_documentation(name, value, package))} |")
        index.append("")
    made = {page: _linked(text, made) for page, text in made.items()}
    made["settings.md"] = _settings_page()
    index += ["## Settings", "", "[All of them](settings.md), with their defaults.", ""]
    made["rest.md"] = _rest_page()
    index += ["## REST", "", "[The routes of the service](rest.md), from its OpenAPI document.", ""]
    made["README.md"] = "\n".join([NOTE, "", *index])
    return {name: f"{text.strip()}\n" for name, text in sorted(made.items())}


def _linked(text: str, made: dict[str, str]) -> str:
    """The text with a link wherever it names a type that has a page."""

    def link(found: re.Match[str]) -> str:
        return f"[`{found[1]}`]({found[1]}.md)" if f"{found[1]}.md" in made else found[0]

    return re.sub(rf"`{HANDED}\.(\w+)`", link, text)


def _public(package: str) -> dict[str, Any]:
    module = import_module(package)
    return {name: getattr(module, name) for name in sorted(module.__all__, key=str.lower) if not name.startswith("_")}


def _functions_page(package: str, prefix: str, functions: dict[str, Any]) -> str:
    title = "Functions" if package == "lockstep" else f"`{package}`"
    parts = [NOTE, "", f"# {title}", ""]
    for name, value in functions.items():
        shown, text = f"{prefix}.{name}{_signature(value)}", _text(_documentation(name, value, package))
        parts += [f"## {name}", "", _code(shown), "", text, ""]
    return "\n".join(parts)


def _settings_page() -> str:
    """Every setting with its default and the text below it in the code."""
    config = import_module("lockstep.config")
    parts = [NOTE, "", "# Settings", "", _SETTINGS, ""]
    for title, cls in (
        ("Before the first table", config.Settings),
        ("`[run]`", config.RunSettings),
        ("`[spark]`", config.SparkSettings),
        ("`[hosts]`", config.HostSettings),
        ("`[policy]`", config.PolicySettings),
    ):
        parts += [f"## {title}", "", _text(inspect.getdoc(cls) or ""), "", "| name | default | |", "|---|---|---|"]
        texts = _field_texts(cls)
        for name, field in cls.model_fields.items():
            if cls is config.Settings and name not in texts:
                continue  # a table of its own
            default = field.get_default(call_default_factory=True)
            shown = "" if default in ({}, "") else f"`{str(default).lower() if isinstance(default, bool) else default}`"
            parts.append(f"| `{name}` | {shown} | {_inline(' '.join(texts.get(name, '').split()))} |")
        parts.append("")
    return "\n".join(parts)


def _rest_page() -> str:
    """Every route of the service and the form of what it takes and answers, from the OpenAPI document."""
    document = _openapi()
    parts = [NOTE, "", "# REST", "", _REST, ""]
    for path, verbs in document["paths"].items():
        for method, one in verbs.items():
            parts += [f"## {method.upper()} {path}", "", " ".join(one["description"].split()), ""]
            parts += _rest_parameters(one.get("parameters", [])) + _rest_bodies(one)
    parts += ["# Forms", ""]
    for name, form in sorted(document["components"]["schemas"].items()):
        fields = form.get("properties")
        if not fields or name.startswith(("HTTPValidation", "Validation")):
            continue
        parts += [f"## {name}", "", " ".join(form.get("description", "").split()), "", "| field | type |", "|---|---|"]
        parts += [f"| `{field}` | {_rest_type(kind)} |" for field, kind in fields.items()] + [""]
    return "\n".join(parts)


def _openapi() -> dict[str, Any]:
    app, service = import_module("lockstep.serve.app"), import_module("lockstep.serve.service")
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Any] = app.create_app(service.Service(Path(folder))).openapi()
    return made


def _rest_parameters(parameters: list[dict[str, Any]]) -> list[str]:
    if not parameters:
        return []
    lines = ["| parameter | in | type | |", "|---|---|---|---|"]
    for one in parameters:
        text = one.get("description", "") + (" Required." if one.get("required") and one["in"] != "path" else "")
        lines.append(f"| `{one['name']}` | {one['in']} | {_rest_type(one['schema'])} | {text.strip()} |")
    return [*lines, ""]


def _rest_bodies(one: dict[str, Any]) -> list[str]:
    lines = []
    for media, body in one.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body: `{media}`, {_rest_type(body['schema'])}.")
    for status, answer in one["responses"].items():
        if status != "default":
            content = answer.get("content", {}).items()
            kinds = " or ".join(f"{_rest_type(body['schema'])} (`{media}`)" for media, body in content)
            lines.append(f"Answers {status}{': ' + kinds if kinds else ''}.")
    return ["\n".join(f"- {line}" for line in lines), ""]


def _rest_type(schema: dict[str, Any]) -> str:
    """A form in a few words, with its limits."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    if "anyOf" in schema:
        return " or ".join(_rest_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_rest_type(schema.get('items', {}))}"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    limits = f", {low:,.0f} to {high:,.0f}" if low is not None and high is not None else ""
    return str(schema.get("const") or schema.get("type", "anything")) + limits


_REST = """\
The routes of [`lockstep serve`](../guide/service.md). What goes wrong is answered as `application/problem+json`
([Problem](#problem)) with a code, and the status that fits: 400 or 422 for a request that has to be changed, 401 and
403 for who asks, 404, 409 for "not now", 412 and 428 for specs, 413 and 429 for too much, 503 for a store that does not
answer. Times are microseconds since 1970."""


_SETTINGS = """\
They are in `lockstep.toml` in the project folder, in `Job(...)`, or on the command line (`--set epoch_interval_s=0.2`,
`--spark-conf KEY=VALUE`); the last wins. Names that end in `_s` are seconds, or durations as people write them
(`"200 ms"`). `[replica.r1.spark]` holds what one replica has of its own."""


def _field_texts(cls: type) -> dict[str, str]:
    """The text below each field of a class."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: str(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }


def _class_page(name: str, cls: type, prefix: str) -> str:
    own = _signature(cls) if prefix != HANDED and _is_made_by_users(cls) else ""
    parts = [NOTE, "", f"# {name}", "", _code(f"{prefix}.{name}{own}"), "", _text(inspect.getdoc(cls) or ""), ""]
    parts += _attribute_table(cls)
    for member, value in _members(cls).items():
        if isinstance(value, property):
            parts += [f"## {member}", "", _text(inspect.getdoc(value) or ""), ""]
        else:
            shown = f".{member}{_signature(value, bound=True)}"
            parts += [f"## {member}", "", _code(shown), "", _text(inspect.getdoc(value) or ""), ""]
    return "\n".join(parts)


def _attribute_table(cls: type) -> list[str]:
    """The attributes with a text below them in the code; of data classes and named tuples all fields."""
    is_data = dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    rows = _attribute_rows(definition.body, {}, all_fields=is_data)
    for method in definition.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            types = {each.arg: each.annotation for each in [*method.args.args, *method.args.kwonlyargs]}
            rows += _attribute_rows(method.body, types, all_fields=False)
    return ["| attribute | |", "|---|---|", *rows, ""] if rows else []


def _attribute_rows(body: list[ast.stmt], types: dict[str, ast.expr | None], *, all_fields: bool) -> list[str]:
    rows = []
    for statement, following in pairwise([*body, ast.Pass()]):
        target, kind = _assigned(statement, types)
        name = getattr(target, "attr", getattr(target, "id", "_"))
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = " ".join(str(following.value.value).split())
        shown = f"{name}: {ast.unparse(kind)}" if kind is not None else name
        if name.startswith("_") or not (text or (all_fields and "ClassVar" not in shown)):
            continue
        rows.append(f"| `{shown.replace('|', chr(92) + '|')}` | {_inline(text).replace('|', chr(92) + '|')} |")
    return rows


def _assigned(statement: ast.stmt, types: dict[str, ast.expr | None]) -> tuple[ast.expr | None, ast.expr | None]:
    """What a statement assigns to and its type, which may be that of the parameter it is given."""
    match statement:
        case ast.AnnAssign(target=target, annotation=annotation):
            return target, annotation
        case ast.Assign(targets=[ast.Attribute() as target], value=ast.Name(id=given)):
            return target, types.get(given)
        case ast.Assign(targets=[ast.Attribute() as target]):
            return target, None
    return None, None


def _members(cls: type) -> dict[str, Any]:
    """Public methods and properties in the order in which they stand in the code, those of base classes last."""
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if not owner.__module__.startswith("lockstep"):
            continue
        for name, value in vars(owner).items():
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            shown = inspect.isfunction(plain) or isinstance(plain, property)
            if shown and not name.startswith("_") and name not in found:
                found[name] = plain
    return found


def _is_made_by_users(cls: type) -> bool:
    """Streams and running jobs come from jobs; what users make themselves has a public signature."""
    return not any(name.startswith(("registry", "_", "step", "graph")) for name in inspect.signature(cls).parameters)


def _signature(value: Any, *, bound: bool = False) -> str:
    """The parameters as they are written; one to a line if they are long."""
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = list(signature.parameters.values())
    if bound and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    shown = _shown_parameters(parameters)
    returned = signature.return_annotation
    result = f" -> {_annotation(returned)}" if returned not in (signature.empty, None) else ""
    line = f"({', '.join(shown)}){result}"
    if len(line) <= _LINE_MAX - 20:
        return line
    return "(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def _shown_parameters(parameters: list[inspect.Parameter]) -> list[str]:
    shown: list[str] = []
    kinds = [parameter.kind for parameter in parameters]
    for number, parameter in enumerate(parameters):
        bare_star = parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown
        if bare_star and parameter.VAR_POSITIONAL not in kinds[:number]:
            shown.append("*")
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        typed = f": {_annotation(parameter.annotation)}" if parameter.annotation is not parameter.empty else ""
        default = _default(parameter.default, typed) if parameter.default is not parameter.empty else ""
        shown.append(f"{stars}{parameter.name}{typed}{default}")
        last_positional = number + 1 == len(parameters) or kinds[number + 1] is not parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.POSITIONAL_ONLY and last_positional:
            shown.append("/")
    return shown


def _default(value: Any, typed: str) -> str:
    text = "..." if callable(value) or " at 0x" in repr(value) else repr(value)
    return f" = {text}" if typed else f"={text}"


def _annotation(annotation: Any) -> str:
    return annotation.strip("'\"") if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _documentation(name: str, value: Any, package: str) -> str:
    """A docstring; of a constant, the text that stands below it in the code."""
    if inspect.isfunction(value) or inspect.isclass(value):
        return inspect.getdoc(value) or ""
    homes: dict[str, str] = vars(import_module(package))["_HOMES"]
    body = ast.parse(inspect.getsource(import_module(f"lockstep.{homes[name]}"))).body
    for statement, following in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return inspect.cleandoc(str(following.value.value))
    return inspect.getdoc(value) or ""


def _first_line(documentation: str) -> str:
    return _inline(documentation.partition("\n\n")[0].replace("\n", " ")).replace("|", "\\|")


def _text(docstring: str) -> str:
    """A docstring as Markdown: examples become code, roles become plain names."""
    parts: list[str] = []
    for paragraph in re.split(r"\n\s*\n", textwrap.dedent(docstring).strip()):
        if paragraph.lstrip().startswith(">>>"):
            parts.append(_code(textwrap.dedent(paragraph)))
        elif parts and parts[-1].endswith("::") and paragraph.startswith("    "):
            parts[-1] = parts[-1].removesuffix(":")
            parts.append(_code(textwrap.dedent(paragraph)))
        else:
            head, mark, example = paragraph.partition("\n>>>")
            parts.append(_inline(head))
            if mark:
                parts.append(_code(f">>>{example}"))
    return "\n\n".join(parts)


def _inline(text: str) -> str:
    return _ROLE.sub(r"`\1`", text).replace("``", "`")


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _anchor(name: str) -> str:
    return name.lower()


def main() -> None:
    """Write the pages; remove those that nothing stands for any more."""
    made = pages()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(made)} pages in {FOLDER}\n")


if __name__ == "__main__":
    main()
