"""The coordinator's gRPC service, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec

from tequio import __version__
from tequio.engines.network import enrolment
from tequio.engines.network.certificates import certified_key, role_of
from tequio.engines.network.enrolment import RENEW_WITHIN_DAYS, RenewingCoordinator
from tequio.engines.network.grpc_setup import LINK, SERVER_OPTIONS, require_grpc
from tequio.engines.network.homes import CoordinatorHome
from tequio.engines.network.hub import Hub, Link, check_version
from tequio.engines.network.relays import REMARKS, REMARKS_PER_SECOND, Relay
from tequio.engines.network.telemetry import Allowance, address_of
from tequio.engines.network.wire import (
    HIGHEST,
    Assembly,
    Chunk,
    Goodbye,
    Hello,
    Left,
    Merged,
    Relayed,
    Renew,
    TaskFailed,
    TaskResult,
    Welcome,
    clipped,
    frame,
    from_party,
)
from tequio.errors import SEE_ITS_LOG, EngineError, PayloadError, PermissionDenied, crossing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from tequio.engines.network.aggregating import Aggregator
    from tequio.engines.network.hub import Status
    from tequio.engines.network.telemetry import Telemetry

_ASK = "ask the coordinator's operator: tequio coordinator audit has the details"
_TOO_MANY = "too many attempts came from there"
# Of one certificate; a party whose link breaks at once dials up to four times a second.
_LINKS, _LINKS_PER_SECOND = 60, 4.0
# Of one address, refused ones only: many parties may join from behind one.
_REFUSALS, _REFUSALS_PER_SECOND = 20, 0.2
_SECONDS_FOR_HELLO = 20.0
_SECONDS_AFTER_REFUSAL = 0.2
_SECONDS_BETWEEN_ROUNDS = 3600.0


class Context(Protocol):
    """gRPC's view of one caller."""

    def peer(self) -> str:
        """Its network address."""
        ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What its certificate says."""
        ...

    async def write(self, data: bytes) -> None:
        """Send it a frame."""
        ...

    async def abort(self, code: object, details: str) -> NoReturn:
        """End the call."""
        ...


class _Server(Protocol):
    async def stop(self, grace: float) -> None: ...


def _shared(cause: BaseException) -> tuple[str, str]:
    """Cause and remedy as a peer may read them. What is wrong with its own message it may know."""
    shared, remedy = (str(cause), "") if isinstance(cause, PayloadError) else crossing(cause)
    return clipped(shared), clipped(_ASK if remedy == SEE_ITS_LOG else remedy)


class Service:
    """Listens for parties. Everything it refuses is noted in the audit log, and refusing one never stops the others."""

    def __init__(self, home: CoordinatorHome | Aggregator, telemetry: Telemetry, *, maximum_reply_bytes: int) -> None:
        self._home, self._telemetry = home, telemetry
        self._maximum = maximum_reply_bytes
        self.hub = Hub(telemetry.note, telemetry.count)
        self._switch = self.hub if isinstance(home, CoordinatorHome) else home
        self._relays: dict[str, Relay] = {}
        self._links = Allowance(_LINKS, _LINKS_PER_SECOND)
        self._refusals = Allowance(_REFUSALS, _REFUSALS_PER_SECOND)
        self._remarks = Allowance(REMARKS, REMARKS_PER_SECOND)
        self._renewing = RenewingCoordinator(home, self.hub, telemetry) if isinstance(home, CoordinatorHome) else None
        self._rounds: asyncio.Task[None] | None = None
        self._grpc = require_grpc()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tequio-service", daemon=True)
        self._servers: list[_Server] = []

    def start(self) -> None:
        """Listen on both ports."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stop(self) -> None:
        """Close all links and end."""
        async def end() -> None:
            if self._rounds is not None:
                self._rounds.cancel()
            for server in self._servers:
                await server.stop(grace=0.5)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._telemetry.sum_up()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def status(self) -> Status:
        """Who is there, directly or through which aggregator, and what goes on."""
        return {**self.hub.status(), "aggregators": {name: relay.names for name, relay in self._relays.items()}}

    def drop(self, name: str) -> None:
        """End the link of a party that is not wanted any more."""
        self.hub.drop(name)
        self._tell_members()

    async def _look_around(self) -> None:
        while self._renewing is not None:
            await asyncio.to_thread(self._renewing.look_around)
            await asyncio.sleep(_SECONDS_BETWEEN_ROUNDS)

    async def _listen(self) -> None:
        grpc = self._grpc
        if isinstance(self._home, CoordinatorHome) and self._home.renew_own(RENEW_WITHIN_DAYS):
            self._telemetry.note("certificate renewed", party="the coordinator itself")
        own, authority = self._home.identity("coordinator"), self._home.identity("authority").certificate
        mutual = grpc.ssl_server_credentials([(own.key, own.certificate)], authority, require_client_auth=True)
        await self._serve(self._home.facts["port"], mutual, LINK, grpc.stream_stream_rpc_method_handler(self._link))
        if isinstance(self._home, CoordinatorHome):
            self._rounds = asyncio.create_task(self._look_around())
            one_sided = grpc.ssl_server_credentials([(own.key, own.certificate)])
            await self._serve(self._home.facts["enrolment_port"], one_sided, enrolment.METHOD,
                              grpc.unary_unary_rpc_method_handler(self._enrol))

    async def _serve(self, port: int, credentials: object, method: str, handler: object) -> None:
        _, service, name = method.split("/")
        server = self._grpc.aio.server(options=SERVER_OPTIONS)
        server.add_generic_rpc_handlers((self._grpc.method_handlers_generic_handler(service, {name: handler}),))
        try:
            bind = self._home.bind
            server.add_secure_port(f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}", credentials)
        except RuntimeError as cause:
            raise EngineError(f"port {port} of {bind} cannot be listened on: {cause}",
                              remedy="another process may use it, perhaps another coordinator of this home; or choose "
                                     "an address of this machine with --bind") from None
        await server.start()
        self._servers.append(server)

    async def _enrol(self, data: bytes, context: Context) -> bytes:
        address = address_of(context.peer())
        if not self._refusals.spend(address, 0):
            self._telemetry.note("enrolment refused", peer=context.peer(), cause=_TOO_MANY)
            self._telemetry.count("refusals", kind="enrolment")
            return msgspec.msgpack.encode(enrolment.Grant(b"", _TOO_MANY, "try again in a minute"))
        try:
            request = msgspec.msgpack.decode(data, type=enrolment.Request)
            assert isinstance(self._home, CoordinatorHome)
            certificate = await asyncio.to_thread(enrolment.grant, self._home, request)
        except Exception as cause:
            self._refusals.spend(address)
            self._telemetry.note("enrolment refused", peer=context.peer(), cause=str(cause) or type(cause).__name__)
            self._telemetry.count("refusals", kind="enrolment")
            await asyncio.sleep(_SECONDS_AFTER_REFUSAL)
            why = ("it cannot be read", "") if isinstance(cause, msgspec.MsgspecError) else _shared(cause)
            return msgspec.msgpack.encode(enrolment.Grant(b"", *why))
        self._telemetry.note("enrolment confirmed" if request.confirms else "enrolled", peer=context.peer(),
                             party=request.name)
        self._tell_members()
        return msgspec.msgpack.encode(enrolment.Grant(certificate))

    async def _link(self, requests: AsyncIterator[bytes], context: Context) -> None:
        shown = context.auth_context()
        name, certificate = (b"".join(shown.get(key, ())) for key in ("x509_common_name", "x509_pem_cert"))
        called = name.decode(errors="replace")
        if not self._links.spend(sha256(certificate).digest()):
            self._telemetry.note("link refused", party=called, peer=context.peer(), cause=_TOO_MANY)
            self._telemetry.count("refusals", kind="link")
            await context.abort(self._grpc.StatusCode.RESOURCE_EXHAUSTED, _TOO_MANY)  # a party dials again later
        try:
            role = self._admitted(called, certificate)
            hello = await asyncio.wait_for(self._hello(requests, called, role, certificate), _SECONDS_FOR_HELLO)
        except Exception as cause:
            await self._refuse(context, cause)
            return
        await context.write(frame(Welcome(min(HIGHEST, hello.highest), __version__)))
        await self._keep(requests, context, hello)

    def _admitted(self, called: str, certificate: bytes) -> str:
        """The role in the peer's certificate, if that is the one we gave to this party."""
        self._home.admit(called, certificate)
        role = role_of(certificate)
        if role not in ("party", "aggregator"):
            raise PermissionDenied(
                f"the certificate of '{called}' is for a coordinator" if role else
                f"the certificate of '{called}' does not say what it is for: an earlier version made it",
                remedy=f"let it join again, into a new --home: tequio coordinator revoke '{called}', then tequio "
                       f"coordinator token '{called}' and, there, tequio party join TOKEN")
        return role

    async def _hello(self, requests: AsyncIterator[bytes], name: str, role: str, certificate: bytes) -> Hello:
        hello, _ = from_party(await anext(aiter(requests), b""))
        if not isinstance(hello, Hello):
            raise PayloadError("a link has to begin with a greeting")
        if hello.name != name:
            raise PermissionDenied(f"party '{name}' says that it is '{hello.name[:80]}'",
                                   remedy="use the folder that this party joined with")
        check_version(hello)
        if hello.key and hello.key != certified_key(certificate):
            raise PermissionDenied(f"party '{name}' signs by another key than its certificate has",
                                   remedy="start it again: its certificate was renewed")
        if hello.aggregator != (role == "aggregator" and isinstance(self._home, CoordinatorHome)):
            raise PermissionDenied(
                f"party '{name}' did not join as an aggregator" if hello.aggregator else
                f"'{name}' is an aggregator and not a party",
                remedy="join with a token of: tequio coordinator token NAME --aggregator HOST:PORT"
                if hello.aggregator else f"start it as one: tequio aggregator run; for a party with this name, free it "
                f"first: tequio coordinator revoke '{name}'")
        return hello

    async def _refuse(self, context: Context, cause: BaseException) -> None:
        self._telemetry.note("link refused", peer=context.peer(), cause=str(cause) or type(cause).__name__)
        self._telemetry.count("refusals", kind="link")
        await context.write(frame(Goodbye(*(("no greeting came", "") if isinstance(cause, TimeoutError) else
                                            _shared(cause)))))

    async def _keep(self, requests: AsyncIterator[bytes], context: Context, hello: Hello) -> None:
        """Carry messages both ways until the link ends, from whichever side."""
        waiting: asyncio.Queue[Iterable[bytes]] = asyncio.Queue()
        here = asyncio.current_task()
        assert here is not None
        link = Link(hello, lambda frames: self._soon(lambda: waiting.put_nowait(frames)),
                    lambda: self._soon(here.cancel))
        writing = asyncio.create_task(self._write(waiting, context, here))
        self._telemetry.note("connected", party=hello.name, peer=context.peer(), version=hello.version)
        relay = self._welcome(link)
        try:
            await self._read(requests, link, relay)
        except asyncio.CancelledError:
            pass
        except Exception as cause:
            self._telemetry.note("link cut", party=hello.name, cause=str(cause) or type(cause).__name__)
            self._telemetry.count("refusals", kind="message")
            await context.write(frame(Goodbye(*_shared(cause))))
        finally:
            writing.cancel()
            if relay is None:
                self._switch.disconnect(link)
            else:
                relay.end()
                if self._relays.get(hello.name) is relay:
                    del self._relays[hello.name]
            self._telemetry.note("disconnected", party=hello.name)

    def _welcome(self, link: Link) -> Relay | None:
        """Let a party's link in; an aggregator's is a relay for the links of its parties."""
        if self._renewing is not None:
            self._renewing.remind(link)
        if self._renewing is None or not link.hello.aggregator or not isinstance(self._home, CoordinatorHome):
            self._switch.connect(link)
            return None
        older = self._relays.get(link.hello.name)
        if older is not None:
            older.close()
        relay = self._relays[link.hello.name] = Relay(self._home, self.hub, self._telemetry, link, self._renewing,
                                                      self._remarks)
        relay.tell_members()
        return relay

    def _tell_members(self) -> None:
        for relay in list(self._relays.values()):
            relay.tell_members()

    async def _read(self, requests: AsyncIterator[bytes], link: Link, relay: Relay | None) -> None:
        assembly = Assembly(self._maximum)
        async for data in requests:
            self._telemetry.count("bytes_received", len(data))
            message, body = from_party(data)
            answered = False
            if isinstance(message, Chunk) and body:
                assembly.take(message, body)
                continue
            if relay is not None:
                relay.take(message, body, assembly)
                continue
            if isinstance(message, Renew) and self._renewing is not None:
                self._renewing.answer(link, message)
            elif isinstance(message, Hello):
                raise PayloadError("a greeting came twice")
            elif isinstance(message, Chunk | Relayed | Left | Merged):
                raise PayloadError(f"a message '{type(message).__name__}' has no place in a party's link")
            else:
                parts = assembly.parts([message.part] if isinstance(message, TaskResult) else [], body)
                heard = self._switch.receive(link, message, parts)
                answered = heard and isinstance(message, TaskResult | TaskFailed)
            if not answered and not self._remarks.spend(link.hello.name):
                raise PayloadError("too many messages came that answer no task")

    async def _write(self, waiting: asyncio.Queue[Iterable[bytes]], context: Context,
                     reading: asyncio.Task[None]) -> None:
        try:
            while True:
                for data in await waiting.get():
                    self._telemetry.count("bytes_sent", len(data))
                    await context.write(data)
        except self._grpc.RpcError:
            reading.cancel()
        except asyncio.CancelledError:
            raise
        except Exception as cause:
            self._telemetry.note("link cut", cause=f"{type(cause).__name__}: {cause}")
            reading.cancel()

    def _soon(self, call: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)
