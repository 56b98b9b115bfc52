"""What a service is for, as JSON, as an OpenAPI document and as a page: columns, classes, requests, answers, errors."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tequio
from tequio.errors import DataError

if TYPE_CHECKING:
    from jinja2 import Template

    from tequio.data.dataset import Feature
    from tequio.models.model import Model
    from tequio.views.serving.versions import Versions

Plain = dict[str, Any]

STATUSES = {
    400: "The body is no JSON or CSV, or names something twice.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site, or asks for another host name.",
    408: "The body did not arrive in time.",
    409: "Another version of the model was asked for than those that answer.",
    413: "The body is too large, or has too many rows.",
    415: "The body is of another type than JSON or CSV.",
    422: "A row cannot be answered: a value, a column, an id or an option is wrong. Row and column are named.",
    431: "The headers are too large.",
    503: "Too many requests wait already. The header Retry-After says when to ask again.",
}


def schema_of(versions: Versions) -> Plain:
    """What rows are answered, and with what."""
    model = versions.production.model
    return {
        "columns": [_column(model, feature) for feature in versions.schema.features],
        "target": {"name": model.target.name, "kind": "clusters" if model.clusters else model.target.kind,
                   "classes": model.classes.tolist()},
        "parties": model.parties,
        "versions": [{"version": one.sha256, "role": one.role, "number": one.number or None,
                      "share": versions.share if one is versions.candidate else 1 - versions.share}
                     for one in versions.all]}


def openapi_of(versions: Versions, most_rows: int, largest: int, *, with_token: bool) -> Plain:
    """The OpenAPI document."""
    known = schema_of(versions)
    row = {"type": "object", "required": [column["name"] for column in known["columns"]],
           "properties": {column["name"]: _json_type(column) for column in known["columns"]}}
    rows: Plain = {"type": "array", "minItems": 1, "maxItems": most_rows, "items": {"$ref": "#/components/schemas/Row"}}
    request = {"type": "object", "additionalProperties": False, "properties": {
        "rows": rows, "columns": {"type": "object", "additionalProperties": {"type": "array"}},
        "ids": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}},
        "party": {"type": "string"}, "unseen": {"enum": ["error", "fill", "skip"], "default": "error"},
        "extra": {"enum": ["error", "ignore"], "default": "error"}, "version": {"type": "string", "minLength": 8}},
        "example": example_of(versions)}
    answer = {"type": "object", "required": ["id", "prediction", "version"], "properties": {
        "id": {"type": "string"}, "prediction": _prediction_type(known), "version": {"type": ["string", "null"]},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}}}}
    error = {"type": "object", "required": ["error", "remedy", "row", "column"], "properties": {
        "error": {"type": "string"}, "remedy": {"type": "string"}, "row": {"type": ["integer", "null"]},
        "column": {"type": ["string", "null"]}}}
    failures = {str(status): {"description": what, "content": _json({"$ref": "#/components/schemas/Error"})}
                for status, what in STATUSES.items()}
    options = [{"name": name, "in": "query", "schema": {"type": "string"}, "description": f"{what} Only beside CSV."}
               for name, what in (("id", "The column that tells rows apart."), ("party", "Whose model answers."),
                                  ("unseen", "error, fill or skip."), ("extra", "error or ignore."),
                                  ("version", "A version that has to be among those that answer."))]
    answers = {"type": "object", "required": ["answers"], "properties": {
        "answers": {"type": "array", "items": {"$ref": "#/components/schemas/Answer"}},
        "ignored": {"type": "array", "items": {"type": "string"}}}}
    document: Plain = {
        "openapi": "3.1.0",
        "info": {"title": f"{versions.name or 'A model'} of tequio", "version": versions.production.sha256[:12],
                 "description": f"Predicts '{known['target']['name']}'. A request has at most {most_rows} rows and "
                                f"{largest} bytes."},
        "paths": {
            "/predict": {"post": {
                "operationId": "predict", "summary": "Answer rows.", "parameters": options,
                "requestBody": {"required": True, "content": {
                    **_json({"$ref": "#/components/schemas/Request"}), "text/csv": {"schema": {"type": "string"}}}},
                "responses": {"200": {"description": "One answer for each row, in their order.",
                                      "content": _json(answers)}, **failures}}},
            **{path: {"get": {"operationId": path[1:], "summary": summary, **({"security": []} if path == "/health"
                              else {}), "responses": {"200": {"description": "OK", "content": {kind: {}}}}}}
               for path, summary, kind in (("/health", "Whether rows are answered.", "application/json"),
                                           ("/metrics", "Counts for Prometheus.", "text/plain"),
                                           ("/schema", "Columns, classes and versions.", "application/json"))}},
        "components": {"schemas": {"Row": row, "Request": request, "Answer": answer, "Error": error}}}
    if with_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def page_of(versions: Versions, most_rows: int, largest: int, *, with_token: bool) -> str:
    """The same for people. Everything in it stands in the page itself."""
    example = json.dumps(example_of(versions))
    return _template().render(schema=schema_of(versions), name=versions.name or "A model", most_rows=most_rows,
                              largest=largest, with_token=with_token, example=example, statuses=STATUSES,
                              quoted=example.replace("'", "'\\''"), release=tequio.__version__)


@cache
def page_policy() -> bytes:
    """The one style sheet that the page may have, by its hash; no scripts, no pictures, no frames."""
    source = _folder().joinpath("serving.html").read_text(encoding="utf-8")
    style = source.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest())
    return b"default-src 'none'; style-src 'sha256-" + digest + b"'; base-uri 'none'; form-action 'none'; " \
        b"frame-ancestors 'none'"


def example_of(versions: Versions) -> Plain:
    """A request that is answered: the usual row."""
    model = versions.production.model
    row = {column["name"]: column.get("categories", [0.0])[0] if column["usual"] is None else column["usual"]
           for column in (_column(model, feature) for feature in versions.schema.features)}
    example: Plain = {"rows": [row], "ids": ["row-1"]}
    return {**example, "party": model.parties[0]} if model.speaks == "own" and model.parties else example


def _column(model: Model, feature: Feature) -> Plain:
    told: Plain = {"name": feature.name, "kind": "category" if feature.categorical else "number",
                   "usual": _usual(model, feature),
                   "may_be_missing": bool(model.reading.missing) or feature.name in model.reading.filled}
    return told if feature.domain is None else {**told, "categories": list(feature.domain)}


def _usual(model: Model, feature: Feature) -> float | str | None:
    try:
        return model.reading.usual_value(feature.name)
    except DataError:
        return None


def _json_type(column: Plain) -> Plain:
    kind: Plain = {"type": ["number", "null"] if column["may_be_missing"] else "number"}
    return kind if column["kind"] == "number" else {"enum": column["categories"] + [None] * column["may_be_missing"]}


def _prediction_type(known: Plain) -> Plain:
    kind, classes = known["target"]["kind"], known["target"]["classes"]
    if kind == "classes":
        return {"enum": [*classes, None]}
    if kind == "multilabel":
        return {"type": ["array", "null"], "items": {"enum": classes}}
    return {"type": ["integer" if kind == "clusters" else "number", "null"]}


def _json(schema: Plain) -> Plain:
    return {"application/json": {"schema": schema}}


def _folder() -> Path:
    return Path(__file__).parents[1] / "templates"


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(loader=FileSystemLoader(_folder()), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=True).get_template("serving.html")
