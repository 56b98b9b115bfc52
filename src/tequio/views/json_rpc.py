"""The Model Context Protocol over lines of JSON-RPC 2.0: what arrives on one stream is answered on the other.

    specification 2025-06-18: initialize, ping, tools/list, tools/call

A line that is no request is answered with an error, and never ends the conversation.
"""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

import tequio

if TYPE_CHECKING:
    from tequio.experiments.running.store import Plain
    from tequio.views.tools import Tools

VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_NO_JSON, _NO_REQUEST, _NO_METHOD, _BAD_PARAMETERS = -32700, -32600, -32601, -32602
_LONGEST = 1 << 20


def serve(tools: Tools, lines: IO[bytes], out: IO[bytes]) -> None:
    """Answer until the other side ends."""
    while line := lines.readline(_LONGEST):
        if not line.endswith(b"\n") and len(line) == _LONGEST:
            while (rest := lines.readline(_LONGEST)) and not rest.endswith(b"\n"):
                continue
            answer: Plain | None = _error(None, _NO_REQUEST, f"a line may have {_LONGEST} bytes")
        else:
            answer = answered(tools, line) if line.strip() else None
        if answer is not None:
            out.write(json.dumps(answer).encode() + b"\n")
            out.flush()


def answered(tools: Tools, line: bytes) -> Plain | None:
    """The answer to a line; nothing to a notification."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, _NO_JSON, "this is not JSON")
    if not isinstance(request, dict) or request.get("jsonrpc") != "2.0" or not isinstance(request.get("method"), str):
        return _error(None, _NO_REQUEST, "this is not a request of JSON-RPC 2.0")
    number, parameters = request.get("id"), request.get("params", {})
    if "id" not in request:
        return None
    if not isinstance(number, str | int) or isinstance(number, bool):
        return _error(None, _NO_REQUEST, "an id is a text or a whole number")
    if not isinstance(parameters, dict):
        return _error(number, _BAD_PARAMETERS, "params is not an object")
    if request["method"] == "initialize":
        wanted = parameters.get("protocolVersion")
        return _result(number, {"protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
                                "capabilities": {"tools": {}},
                                "serverInfo": {"name": "tequio", "version": tequio.__version__}})
    if request["method"] == "ping":
        return _result(number, {})
    if request["method"] == "tools/list":
        return _result(number, {"tools": tools.described()})
    if request["method"] == "tools/call":
        return _called(tools, number, parameters)
    return _error(number, _NO_METHOD, "there is no such method")


def _called(tools: Tools, number: str | int, parameters: Plain) -> Plain:
    name, arguments = parameters.get("name"), parameters.get("arguments", {})
    if not isinstance(name, str) or name not in tools.names or not isinstance(arguments, dict):
        return _error(number, _BAD_PARAMETERS, f"params takes 'name', one of {', '.join(tools.names)}, and "
                                               "'arguments', an object")
    found, is_error = tools.call(name, arguments)
    return _result(number, {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found,
                            "isError": is_error})


def _result(number: str | int, result: Any) -> Plain:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: str | int | None, code: int, message: str) -> Plain:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
