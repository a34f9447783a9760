"""The OpenAPI description as one plain HTML page, without scripts and without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
h2 { border-top: 1px solid #999; margin-top: 2rem; padding-top: 1rem }
code, pre { font-family: ui-monospace, monospace } pre { overflow: auto; background: #8882 }
table { border-collapse: collapse } td, th { border: 1px solid #999; padding: .2rem .5rem;
text-align: left; vertical-align: top }
"""


def render(document: Mapping[str, Any]) -> str:
    """HTML for an OpenAPI document."""
    info = document["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        f"<p>{escape(info.get('description', ''))}</p>",
        "<p>The same for programs: <a href=/openapi.json>openapi.json</a></p>",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation))
    parts.append("<h1>Bodies</h1>")
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        parts.append(_schema(name, schema))
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>",
        f"<p>{escape(operation.get('description', ''))}</p>",
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(parameter['name'])}</code><td>{escape(parameter['in'])}"
            f"<td>{_kind(parameter['schema'])}<td>{escape(parameter.get('description', ''))}"
            for parameter in parameters
        )
        parts.append(f"<table><tr><th>parameter<th>in<th>type<th>meaning{rows}</table>")
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    parts += [f"<p>Body: {_kind(content['schema'])}</p>" for content in bodies]
    rows = "".join(
        f"<tr><td>{escape(status)}<td>{escape(answer.get('description', ''))}<td>{_answer(answer)}"
        for status, answer in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>status<th>meaning<th>body{rows}</table>")
    return "".join(parts)


def _answer(answer: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_kind(content.get('schema', {}))} <small>{escape(kind)}</small>"
        for kind, content in answer.get("content", {}).items()
    )


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    parts = [f"<h3 id={escape(name)}>{escape(name)}</h3>"]
    parts.append(f"<pre>{escape(schema.get('description', ''))}</pre>")
    if "enum" in schema:
        parts.append(f"<p>One of {', '.join(escape(json.dumps(v)) for v in schema['enum'])}</p>")
    rows = "".join(
        f"<tr><td><code>{escape(key)}</code><td>{_kind(value)}"
        f"<td>{'required' if key in required else escape(json.dumps(value.get('default')))}"
        f"<td>{escape(_bounds(value))}"
        for key, value in schema.get("properties", {}).items()
    )
    if rows:
        parts.append(f"<table><tr><th>key<th>type<th>default<th>bounds{rows}</table>")
    return "".join(parts)


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href=#{name}>{name}</a>"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_kind(option) for option in schema[word])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "const" in schema:
        return escape(json.dumps(schema["const"]))
    return escape(str(schema.get("type", "any")))


def _bounds(schema: Mapping[str, Any]) -> str:
    words = {
        "minimum": ">=",
        "exclusiveMinimum": ">",
        "maximum": "<=",
        "exclusiveMaximum": "<",
        "minLength": "length >=",
        "maxLength": "length <=",
        "pattern": "pattern",
    }
    found = [f"{sign} {schema[word]}" for word, sign in words.items() if word in schema]
    for option in schema.get("anyOf", ()):
        found += [_bounds(option)] if _bounds(option) else []
    return ", ".join(found)
