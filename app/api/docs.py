"""`/openapi.json`, and `/docs`: the same for people, one page without scripts that needs no other
site."""

from collections.abc import Mapping
from html import escape
from typing import Any, cast

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from fastapi.responses import HTMLResponse

from app.api.description import JSON, operations
from app.api.examples import EXAMPLES, curl
from app.version import version

router = APIRouter()

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .35rem 0 }
summary code { font-weight: 600 }
details { border-bottom: 1px solid #8884 }
pre { overflow-x: auto; padding: .75rem; border: 1px solid #8884; border-radius: .4rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem .75rem .2rem 0 }
.method { display: inline-block; width: 4.5rem; opacity: .7 }
"""
# Nothing on the page runs or is fetched, whatever a name in it may say.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


@router.get("/openapi.json")
async def openapi(http: HttpRequest) -> dict[str, Any]:
    """This description, for programs."""
    return http.app.state.description()


@router.get("/docs")
async def docs(http: HttpRequest) -> HTMLResponse:
    """This description, for people."""
    text = page(http.app.state.description(), str(http.base_url).rstrip("/"))
    return HTMLResponse(text, headers={"content-security-policy": _POLICY})


def page(document: Mapping[str, Any], url: str) -> str:
    """The description as HTML, with commands to try that go to `url`."""
    sections: dict[str, list[str]] = {}
    for method, path, operation in operations(document):
        told = _operation(document, url, method, path, operation)
        sections.setdefault(operation["tags"][0], []).append(told)
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(told)}" for tag, told in sections.items())
    about = escape(document["info"]["description"])
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>runner: API</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>runner {escape(version())}</h1><p>{about}</p>"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a></p>{body}</html>'
    )


def _operation(
    document: Mapping[str, Any], url: str, method: str, path: str, operation: JSON
) -> str:
    told = [f"<p>{escape(operation.get('description', ''))}</p>"]
    if (example := EXAMPLES.get((method, path))) is not None:
        told.append(f"<pre>{escape(curl(url, method, path, example))}</pre>")
    rows = [
        (item["name"], _kind(item["schema"]), item["in"], item["required"])
        for item in operation.get("parameters", [])
    ]
    if body := operation.get("requestBody"):
        name = body["content"]["application/json"]["schema"]["$ref"]
        fields = _resolved(document, name)
        required = fields.get("required", [])
        rows += [
            (key, _kind(schema), schema.get("description", ""), key in required)
            for key, schema in fields["properties"].items()
        ]
    if rows:
        lines = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td>"
            f"<td>{'required' if required else ''} {escape(note)}</td></tr>"
            for name, kind, note, required in rows
        )
        told.append(f"<table><tr><th>field<th>what<th></tr>{lines}</table>")
    head = f'<span class="method">{method}</span><code>{escape(path)}</code>'
    return f"<details><summary>{head}</summary>{''.join(told)}</details>"


def _resolved(document: Mapping[str, Any], ref: str) -> JSON:
    return document["components"]["schemas"][ref.rpartition("/")[2]]


_BOUNDS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
}


def _kind(schema: JSON) -> str:
    """A schema in a few words."""
    if options := schema.get("anyOf"):
        kinds = [_kind(option) for option in options if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if ref := schema.get("$ref"):
        return cast(str, ref).rpartition("/")[2]
    if values := schema.get("enum"):
        return " or ".join(f'"{value}"' for value in values)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if known := schema.get("properties"):
        return f"{{{', '.join(known)}}}"
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    return f"{kind} {', '.join(bounds)}".strip()
