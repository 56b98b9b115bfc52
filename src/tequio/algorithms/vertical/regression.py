"""Logistic, linear and Poisson regression between parties with different columns, under homomorphic encryption.

Hardy, Henecka, Ivey-Law, Nock, Patrini, Smith, Thorne: Private federated learning on vertically partitioned data via
entity resolution and additively homomorphic encryption, 2017. Each batch is three exchanges:

1. every party sends its part of the rows' residuals, encrypted; the coordinator adds what it cannot read;
2. every party multiplies the encrypted residuals with its own columns, puts a pad on the result, and sends it;
3. the key holder opens what is under the pads; every party takes its pad off and moves its own weights.

Changes to the paper: weights stay with their parties (there the key holder has them all); gradients are padded, so that
the key holder learns nothing; sums are taken by the coordinator, so that any number of parties can take part; and the
label holder calibrates the scores, because the cut series gives the direction of the weights but not their size.

Of several classes, each is told from all others by a logistic regression of its own, one after the other in a round;
they share the rows, the keys and the batches, and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence  # noqa: TC003 - parameters are read from the annotations
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import numpy as np
from annotated_types import Ge

from tequio.algorithms.vertical import regression_scores as scoring
from tequio.algorithms.vertical import regression_tasks as tasks
from tequio.algorithms.vertical.alignment import link
from tequio.algorithms.vertical.conversation import columns_of, require_key_holder
from tequio.algorithms.vertical.quadratic import QUADRATICS, Kind
from tequio.algorithms.vertical.rows import CommonRows
from tequio.algorithms.vertical.vertical import Request, VerticalAlgorithm
from tequio.errors import ConfigError, EncryptionError
from tequio.federation.algorithm import part
from tequio.learners.descent import batch_rows, row_orders
from tequio.learners.learner import LocalTraining
from tequio.privacy.encryption.numbers import FixedPoint, source
from tequio.registry import build

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.algorithms.vertical.regression_tasks import Encryption
    from tequio.algorithms.vertical.rows import RowRequest
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload
    from tequio.federation.task import AnyTask, Task
    from tequio.privacy.encryption.scheme import Encrypted, PublicKey

_SCORED = 100
"""Ciphertexts of scores or losses that are opened at once, at most: those of 400,000 rows."""

S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class VerticalRegression(VerticalAlgorithm):
    """What the regressions share: all but their loss."""

    kept_to_score: ClassVar[Mapping[type, Sequence[str]]] = {
        CommonRows: ("scale",), tasks.OwnWeights: ("key", "weights"), tasks.KeptSecret: ("secret", "opened"),
        tasks.KeptByLabels: ("target", "calibration", "calibrated_in")}
    remembered_to_score: ClassVar[tuple[str, ...]] = ("key",)

    local: LocalTraining = part(factory=LocalTraining)
    encryption: str | dict[str, Any] = "paillier"
    hide_matches: bool = False
    patience: Annotated[int, Ge(0)] = 3
    loss_rows: Annotated[int, Ge(1)] = 1000

    @property
    @abstractmethod
    def kind(self) -> Kind:
        """Which loss."""

    def start(self, federation: Federation) -> State:
        """Refuse what cannot work before anything is sent."""
        require_key_holder(federation)
        self.scheme()
        self._fits(federation)
        return super().start(federation)

    def agree(self, talk: Conversation, state: State) -> State:
        """Find the common rows, or an order in which nobody sees which these are."""
        if not self.hide_matches:
            return super().agree(talk, state)
        rows, mask = link(talk, self.compare)
        return state.next({"rows": rows}, mask=mask)

    def prepare(self, talk: Conversation, state: State) -> State:
        """The key holder makes the keys; everyone else gets the public part."""
        key = self._made_key(talk, 0, "")
        talk.ask(talk.roles.holders, tasks.take_key, {"key": key}, settings=self._with_key(talk))
        return state.next(key=key, losses=[])

    def step(self, talk: Conversation, state: State) -> State:
        """All batches of the round, then the loss, if stopping depends on it."""
        digests: dict[str, list[str]] = {}
        for label in range(self._classes(talk)):
            state, ended = self._went_down(talk, state, label)
            for name, digest in ended.items():
                digests.setdefault(name, []).append(digest)
        model = {**state.model, "weights": {name: "".join(each) for name, each in digests.items()}}
        if not self.patience:
            return state.next(model)
        state = self._with_openings(talk, state, _SCORED * self._classes(talk))
        return state.next(model, losses=[*state.memory["losses"], self._loss(talk, state)])

    def _went_down(self, talk: Conversation, state: State, label: int) -> tuple[State, dict[str, str]]:
        """All batches of the round, for one class where there are several; a digest of the weights of each party."""
        opened: dict[int, Payload] = {}
        gradients = (_widest(talk.federation) + 1) * len(talk.roles.holders)
        for number, positions in enumerate(self._batches(talk.federation, state)):
            state = self._with_openings(talk, state, gradients)
            opened = self._batch(talk, state, self._asked(talk, state, "train", positions, number), opened, label)
        ended = talk.ask(talk.roles.holders, tasks.residual, each=opened,
                         settings=self._residual(talk, "end", 0.0, 0.0, label))
        return state, {talk.federation.name(reply.party): reply.payload["weights"] for reply in ended}

    def finished(self, state: State) -> str:
        """Whether the loss under encryption has not gone down for `patience` rounds."""
        losses = state.memory.get("losses", [])
        if not self.patience or len(losses) <= self.patience:
            return ""
        best = min(losses[:-self.patience])
        lower = min(losses[-self.patience:]) < best
        return "" if lower else f"the loss has not gone below {best:.6g} for {self.patience} rounds"

    def scores(self, talk: Conversation, state: State, request: Request) -> None:
        """The scores of the rows asked about, at the label holder, calibrated where that is to be done."""
        self.get_ready(talk, state)
        for label in range(self._classes(talk)):
            self._scored(talk, state, request, scoring.keep_scores, label)

    def get_ready(self, talk: Conversation, state: State) -> None:
        """Calibrate, where the label holder has not done so since the last round."""
        part = self._calibration_part(state)
        if part and not talk.ask_one(talk.roles.label_holder, scoring.is_calibrated)["calibrated"]:
            for label in range(self._classes(talk)):
                self._scored(talk, state, {party: {"part": part} for party in talk.roles.holders}, scoring.calibrate,
                             label)

    @classmethod
    def tasks_of_prediction(cls) -> tuple[AnyTask, ...]:
        """Parts of scores are added up under encryption, and the key holder opens what is padded."""
        return (*super().tasks_of_prediction(), tasks.make_key, tasks.change_key, scoring.is_calibrated,
                scoring.part_of_scores, scoring.hide_scores, tasks.open_hidden, scoring.keep_scores)

    @property
    def also_sent(self) -> tuple[object, ...]:
        """The encryption."""
        return (self.scheme(),)

    def scheme(self) -> Encryption:
        """The encryption."""
        table = {"name": self.encryption} if isinstance(self.encryption, str) else dict(self.encryption)
        if self._products() > 1 and table.get("name") == "ckks":
            table = {"products": 2, "degree": 16384, **table}
        made: Encryption = build("encryption", table.pop("name", "paillier"), table, where="algorithm.encryption")
        return made

    def _asked(self, talk: Conversation, state: State, part: str, positions: NDArray[np.int64],
               step: int | str) -> tasks.EncryptedRequest:
        """Which rows are meant and, where matches are hidden, which of them count."""
        asked: tasks.EncryptedRequest = {"part": part, "positions": positions, "step": step}
        if part == "train" and "mask" in state.memory:
            public = self._key(state)
            draw = source(self.scheme().randomness, talk.federation.rng(f"mask {step}"))
            flags = public.encrypt(state.memory["mask"][positions], draw, FixedPoint(0, 0))
            asked["mask"] = public.send(flags, draw)
        return asked

    def _batch(self, talk: Conversation, state: State, asked: tasks.EncryptedRequest,
               opened: Mapping[int, Payload], label: int) -> dict[int, Payload]:
        """One batch: residuals, hidden gradients, and what the key holder opens, for each party to go on with."""
        federation, holders = talk.federation, talk.roles.holders
        total = self._residuals(talk, state, {party: {**asked, **opened.get(party, {})} for party in holders},
                                QUADRATICS[self.kind].curve, label)
        replies = talk.ask(holders, tasks.gradient, {**rows_of_request(asked), "residual": total},
                           settings=self._secret(talk, "gradient", label))
        found = self._opened(talk, {federation.name(reply.party): reply.payload["gradient"] for reply in replies})
        rows = len(asked["positions"])
        return {federation.index(name): {"opened": numbers, "rows": rows} for name, numbers in found.items()}

    def _residuals(self, talk: Conversation, state: State, each: Mapping[int, Mapping[str, Any]], curve: float,
                   label: int) -> Payload:
        """The residuals of some rows: the sum of all parties' parts, encrypted."""
        settings = self._residual(talk, f"residual {curve}", curve, QUADRATICS[self.kind].pull, label)
        return encrypted_sum(talk, self._key(state), tasks.residual, "residual", each, settings)

    def _loss(self, talk: Conversation, state: State) -> float:
        """The loss on the validation rows, or without any on training rows, as the label holder reports it; of several
        classes, the mean of theirs."""
        part = "validation" if state.model["rows"]["validation"] else "train"
        positions = np.arange(min(state.model["rows"][part], self.loss_rows))
        asked, classes = self._asked(talk, state, part, positions, "loss"), self._classes(talk)
        mean = sum(self._mean_loss(talk, state, asked, label) for label in range(classes)) / classes
        talk.federation.record("loss", {"round": talk.federation.round, "part": part, "loss": mean})
        return mean

    def _mean_loss(self, talk: Conversation, state: State, asked: tasks.EncryptedRequest, label: int) -> float:
        """The cut loss of some rows, under encryption until the label holder takes its pads off."""
        holder, holders = talk.roles.label_holder, talk.roles.holders
        total = self._residuals(talk, state, dict.fromkeys(holders, asked), QUADRATICS[self.kind].curve / 2, label)
        parts = {party: {**asked, "residual": total} for party in holders}
        loss = encrypted_sum(talk, self._key(state), scoring.loss_part, "loss", parts,
                             self._secret(talk, "loss", label))
        hidden = talk.ask_one(holder, scoring.hide_loss, {**asked, "loss": loss},
                              settings=self._secret(talk, "hide loss", label))
        found = self._opened(talk, hidden["hidden"])
        return talk.ask_one(holder, scoring.loss, {**asked, "opened": found},
                            settings=self._with_key(talk, label))["loss"]

    def _scored(self, talk: Conversation, state: State, request: Mapping[int, RowRequest],
                then: Task[tasks.KeySettings, R], label: int = 0) -> R:
        """Add up the scores of some rows under encryption and let the label holder go on with them; its answer."""
        holder, purpose = talk.roles.label_holder, f"scores {then.name}"
        state = self._with_openings(talk, state, _SCORED)
        settings = scoring.ScoreSettings(**vars(self._secret(talk, purpose, label)), parties=len(talk.roles.holders))
        total = encrypted_sum(talk, self._key(state), scoring.part_of_scores, "scores", request, settings)
        hidden = talk.ask_one(holder, scoring.hide_scores, {"scores": total},
                              settings=self._secret(talk, f"hide {purpose}", label))
        found = self._opened(talk, {"scores": hidden["hidden"]})
        return talk.ask_one(holder, then, {**request[holder], "opened": found["scores"]},
                            settings=self._with_key(talk, label))

    def _with_openings(self, talk: Conversation, state: State, openings: int) -> State:
        """With a key that may open so many ciphertexts more, where that is limited."""
        if not self.scheme().openings:
            return state
        key = self._made_key(talk, openings, self._key(state).fingerprint)
        if not key:
            return state
        talk.ask(talk.roles.holders, tasks.change_key, {"key": key}, settings=self._with_key(talk))
        return state.next(key=key)

    def _made_key(self, talk: Conversation, openings: int, has: str) -> Payload:
        """The key holder's public key, which may open so many ciphertexts; nothing where that is the one we have."""
        return talk.ask_one(require_key_holder(talk.federation), tasks.make_key, {"openings": openings, "has": has},
                            settings=self._with_key(talk),
                            check=lambda reply, _: reply["key"] and self.scheme().public_key(reply["key"]))["key"]

    def _opened(self, talk: Conversation, hidden: dict[str, Payload]) -> dict[str, Payload]:
        """What the key holder makes of some hidden ciphertexts, by the same names."""
        key_holder = require_key_holder(talk.federation)
        opened = talk.ask_one(key_holder, tasks.open_hidden, {"hidden": hidden},
                              settings=self._with_key(talk))["opened"]
        if opened.keys() != hidden.keys():
            talk.refuse(tasks.open_hidden, key_holder, "it did not open what it was asked to open")
        return opened

    def _calibration_part(self, state: State) -> str:
        """The part of the rows whose scores are calibrated; empty for none."""
        return ""

    def _products(self) -> int:
        """How many products one after the other ciphertexts must bear: a mask, then a column."""
        return 2 if self.hide_matches else 1

    def _key(self, state: State) -> PublicKey:
        return self.scheme().public_key(state.memory["key"])

    def _classes(self, talk: Conversation) -> int:
        """How many regressions there are: one for each class where there are more than two."""
        names = talk.federation.schema.target.names
        return len(names) if self.kind == "logistic" and len(names) > 2 else 1

    def _with_key(self, talk: Conversation, label: int = 0) -> tasks.KeySettings:
        return tasks.KeySettings(scheme=self.scheme(), kind=self.kind, classes=self._classes(talk), label=label)

    def _secret(self, talk: Conversation, purpose: str, label: int) -> tasks.SecretSettings:
        return tasks.SecretSettings(**vars(self._with_key(talk, label)), purpose=purpose)

    def _residual(self, talk: Conversation, purpose: str, curve: float, pull: float,
                  label: int) -> tasks.ResidualSettings:
        return tasks.ResidualSettings(**vars(self._secret(talk, purpose, label)), curve=curve, pull=pull,
                                      local=self.local)

    def _batches(self, federation: Federation, state: State) -> Iterable[NDArray[np.int64]]:
        """The batches of the round; one from which a party could work out labels joins the one before it."""
        rows, local, least = state.model["rows"]["train"], self.local, self._told_by(federation) + 1
        size = batch_rows(rows, local)
        for order in row_orders(rows, local, federation.rng("batches")):
            cuts = [start for start in range(size, len(order), size) if len(order) - start >= least]
            yield from np.split(order, cuts)

    def _told_by(self, federation: Federation) -> int:
        """The most rows of a batch whose residuals a party could work out from its gradient: as many as it has columns.
        One of several classes follows from the others, so that fewer are unknown."""
        classes = len(federation.schema.target.names)
        return _widest(federation) if self.kind != "logistic" or classes < 3 else \
            ceil(_widest(federation) * classes / (classes - 1))

    def _fits(self, federation: Federation) -> None:
        local, told = self.local, self._told_by(federation)
        if local.clip_norm:
            raise ConfigError("no party knows the length of the whole gradient, so it cannot be clipped",
                              remedy="leave out local.clip_norm")
        if 0 < local.batch <= told:
            raise ConfigError(f"from the gradient of {local.batch} rows a party with {_widest(federation)} columns "
                              "could work out each row's residual, and so its label",
                              remedy=f"set local.batch above {told}")
        if self.hide_matches and self.alignment == "agreed":
            raise ConfigError("where the rows are agreed on there are no matches to hide",
                              remedy="set algorithm.alignment = 'psi' or leave out algorithm.hide_matches")


def _widest(federation: Federation) -> int:
    """The most columns, as numbers, that a party has."""
    features = federation.schema.features
    widths = [1 if feature.domain is None else len(feature.domain) for feature in features]
    return max((sum(widths[column] for column in columns_of(federation, int(party)))
                for party in federation.everyone()), default=0)


def rows_of_request(asked: Mapping[str, object]) -> dict[str, object]:
    """The part of a request that says which rows are meant."""
    return {name: asked[name] for name in ("part", "positions", "step")}


def encrypted_sum(talk: Conversation, public: PublicKey, task: Task[S, Any], name: str,
                  each: Mapping[int, Mapping[str, object]], settings: S) -> Payload:
    """What the parties answer under that name, added up; a party whose answer cannot be added is named."""
    received: dict[str, Encrypted] = {}

    def check(payload: Mapping[str, Any], whose: str) -> None:
        received[whose] = public.receive(payload.get(name, {}), whose)

    replies = talk.ask(each, task, each=each, settings=settings, check=check)
    parts = {reply.party: received[f"party '{talk.federation.name(reply.party)}'"] for reply in replies}
    try:
        total = public.add(*parts.values())
    except EncryptionError as cause:
        talk.refuse(task, _odd_one(public, parts), cause.message)
        raise
    # What is fresh stays so when added: no randomness is needed to send it.
    return public.send(total, source("system", talk.federation.rng("send")))


def _odd_one(public: PublicKey, parts: Mapping[int, Encrypted]) -> int:
    """The first party whose ciphertexts do not go with those of most others."""
    def strangers(party: int) -> int:
        return sum(not _go_together(public, parts[party], other) for other in parts.values())

    return max(parts, key=lambda party: (strangers(party), party))


def _go_together(public: PublicKey, first: Encrypted, second: Encrypted) -> bool:
    try:
        public.add(first, second)
    except EncryptionError:
        return False
    return True
