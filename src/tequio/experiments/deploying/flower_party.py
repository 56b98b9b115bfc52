"""The party's half of a Flower app: a shell around a party's site, next to its rows.

SuperNodes start a process for each letter, so what is not needed to hand a letter on is imported only where it is.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tequio.engines.flower.party import PartyDaemon, ask_daemon
from tequio.engines.flower.transport import KIND, from_record, refuse_telemetry, require_flower, to_record
from tequio.errors import ConfigError, EngineError, crossing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


HOME_KEY = "tequio-home"


def client_app() -> Any:
    """The app that SuperNodes start for each letter."""
    app = require_flower()
    from flwr.clientapp import ClientApp

    made = ClientApp()

    def answer(message: Any, context: Any) -> Any:
        refuse_telemetry()
        frames = answer_at(context.node_config, from_record(message.content))
        return app.Message(to_record(frames), reply_to=message)

    getattr(made, KIND)()(answer)
    return made


def answer_at(node: Mapping[str, object], frames: list[bytes]) -> list[bytes]:
    """A party's answer to a letter: from the process that stays up for it, or from this one."""
    answers = ask_daemon(_home(node), frames)
    if answers is not None:
        return answers
    answer = open_party(_home(node))
    try:
        return answer(frames)
    except Exception as cause:
        traceback.print_exc()
        message, remedy = crossing(cause)
        raise EngineError(message, remedy=remedy) from None


def open_party(home: Path) -> Callable[[list[bytes]], list[bytes]]:
    """Open a party's folder and its rows. What is wrong with them is said in its own log, and nowhere else."""
    try:
        return _opened(home)
    except Exception:
        traceback.print_exc()
        raise EngineError("the party's folder cannot be used; the log of its SuperNode says why") from None


def serve(home: Path) -> None:
    """Stay up with the rows open, and answer what the SuperNode is sent."""
    from tequio import registry
    from tequio.experiments.deploying.deploying import end_on_sigterm

    answer = _opened(home)
    registry.load_everything()  # before the first task has to wait for it
    daemon = PartyDaemon(home, answer)
    end_on_sigterm()
    try:
        daemon.serve()
    finally:
        daemon.close()


def _opened(home: Path) -> Callable[[list[bytes]], list[bytes]]:
    from tequio.engines.flower.party import answer_request
    from tequio.engines.inline import one_thread
    from tequio.engines.network.homes import PartyHome
    from tequio.engines.network.site import Site
    from tequio.engines.network.telemetry import AuditLog, to_stderr
    from tequio.experiments.deploying.holdings import open_holding
    from tequio.gate.policy import read_policy

    place = PartyHome(home)
    facts, policy = place.facts, read_policy(place.policy)
    holding = open_holding(facts["name"], facts["data"])
    site = Site(place, holding, policy, to_stderr(AuditLog(place.audit)))
    one_thread()
    return lambda frames: answer_request(site, frames)


def _home(node: Mapping[str, object]) -> Path:
    if HOME_KEY not in node:
        raise ConfigError("this SuperNode was not told which party it is",
                          remedy=f"""start it with --node-config '{HOME_KEY}="/path/of/the/party"'""")
    return Path(str(node[HOME_KEY]))
