"""The encrypted regressions of classes, counts and numbers: what each loss adds to what `regression.py` says of all."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - parameters are read from the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from tequio.algorithms.vertical import regression_scores as scoring
from tequio.algorithms.vertical import regression_tasks as tasks
from tequio.algorithms.vertical.quadratic import Kind  # noqa: TC001
from tequio.algorithms.vertical.regression import VerticalRegression, encrypted_sum, rows_of_request
from tequio.errors import ConfigError
from tequio.registry import register

if TYPE_CHECKING:
    from tequio.algorithms.vertical.conversation import Conversation
    from tequio.federation.algorithm import State
    from tequio.federation.federation import Federation
    from tequio.federation.payload import Payload


@dataclass(frozen=True, kw_only=True)
class ExpandedRegression(VerticalRegression):
    """A loss that is not quadratic: cut after its square, around 0 or around scores that the label holder knows."""

    calibrate: bool = True
    recentre: Annotated[int, Ge(0)] = 0

    def step(self, talk: Conversation, state: State) -> State:
        """All batches of the round, after the loss has been expanded around new scores where that is due."""
        done = state.memory.get("rounds", 0)
        if self.recentre and done and done % self.recentre == 0:
            for label in range(self._classes(talk)):
                self._scored(talk, state, {party: {"part": "train"} for party in talk.roles.holders}, scoring.recentre,
                             label)
            state = state.next(centred=True)
        return super().step(talk, state).next(rounds=done + 1)

    def _residuals(self, talk: Conversation, state: State, each: Mapping[int, Mapping[str, Any]], curve: float,
                   label: int) -> Payload:
        """Of the cut series; once the loss is expanded around scores, the label holder makes them of encrypted ones."""
        if not state.memory.get("centred"):
            return super()._residuals(talk, state, each, curve, label)
        holder, public = talk.roles.label_holder, self._key(state)
        scores = encrypted_sum(talk, public, tasks.residual, "residual", each,
                               self._residual(talk, "centred scores", 1.0, 0.0, label))
        made = talk.ask_one(holder, tasks.centred_residual, {**rows_of_request(each[holder]), "scores": scores},
                            settings=self._secret(talk, "centred residual", label),
                            check=lambda payload, whose: public.receive(payload["residual"], whose))
        return made["residual"]

    def _mean_loss(self, talk: Conversation, state: State, asked: tasks.EncryptedRequest, label: int) -> float:
        """The cut loss; where the descent is not on that, the whole loss, of which the label holder knows scores."""
        if not self.recentre:
            return super()._mean_loss(talk, state, asked, label)
        return self._scored(talk, state, dict.fromkeys(talk.roles.holders, asked), scoring.exact_loss, label)["loss"]

    def _products(self) -> int:
        """One more where the label holder multiplies scores by slopes."""
        return 2 if self.recentre else super()._products()

    def _calibration_part(self, state: State) -> str:
        """Training rows; where nobody knows which of these count, validation rows."""
        part = "validation" if self.hide_matches else "train"
        return part if self.calibrate and state.model["rows"][part] else ""

    def _fits(self, federation: Federation) -> None:
        if self.recentre and self.hide_matches:
            raise ConfigError("scores of rows that may not be common cannot be opened, so the loss cannot be "
                              "expanded around them", remedy="set algorithm.recentre = 0 or leave out "
                                                             "algorithm.hide_matches")
        super()._fits(federation)


@register("algorithm", "vertical-logistic", paper="Hardy et al., 2017")
@dataclass(frozen=True, kw_only=True)
class VerticalLogistic(ExpandedRegression):
    """Logistic regression on columns of several parties, under encryption: the loss is cut after its square.

    More than two classes are told apart one against the rest: a regression for each, and each probability over their
    sum (no softmax: its loss, cut likewise, orders classes alike). Needs a key holder (`data.partition.key_holder =
    true`). A round is `local.epochs` passes or `local.steps` batches; all keys of [local] act but `clip_norm`, which is
    refused. Weights stay with their parties.

    Parameters:
        alignment: find the common rows by private set intersection (psi), or take all as they stand (agreed)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        encryption: paillier, ckks or plain: its name, or a table with its name and parameters
        hide_matches: do not reveal to parties which training rows are common: others are masked out under encryption
        patience: stop when the loss has not gone down for this many rounds (0: never, and no loss is worked out)
        loss_rows: at most this many rows (validation rows, where there are any) go into that loss
        calibrate: let the label holder turn scores into log-odds by a regression on training scores (where matches are
            hidden, on validation scores)
        recentre: every this many rounds, expand the loss around the present scores of the training rows, which the
            label holder learns for it: the descent is then that of the logistic loss itself (0: never, as in the paper)
    """

    @property
    def kind(self) -> Kind:
        """The cut series of the logistic loss."""
        return "logistic"

    def _fits(self, federation: Federation) -> None:
        if federation.schema.target.kind != "classes":
            raise ConfigError("the algorithm 'vertical-logistic' is for classes",
                              remedy="use 'vertical-linear' for numbers, or 'vertical-poisson' for counts")
        super()._fits(federation)


@register("algorithm", "vertical-poisson", paper="Hardy et al., 2017")
@dataclass(frozen=True, kw_only=True)
class VerticalPoisson(ExpandedRegression):
    """Poisson regression of counts on columns of several parties, under encryption: the loss is cut after its square.

    Counts are divided by their mean, and scores are logarithms of rates over that mean. Needs a key holder
    (`data.partition.key_holder = true`). A round is `local.epochs` passes or `local.steps` batches; all keys of [local]
    act but `clip_norm`, which is refused. Weights stay with their parties.

    Parameters:
        alignment: find the common rows by private set intersection (psi), or take all as they stand (agreed)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        encryption: paillier, ckks or plain: its name, or a table with its name and parameters
        hide_matches: do not reveal to parties which training rows are common: others are masked out under encryption
            (only with recentre = 0)
        patience: stop when the loss has not gone down for this many rounds (0: never, and no loss is worked out)
        loss_rows: at most this many rows (validation rows, where there are any) go into that loss
        calibrate: let the label holder turn scores into logarithms of rates by a regression on training scores (where
            matches are hidden, on validation scores)
        recentre: every this many rounds, expand the loss around the present scores of the training rows, which the
            label holder learns for it: the descent is then that of the Poisson loss itself (0: never; the cut series
            is good for rates near their mean only)
    """

    recentre: Annotated[int, Ge(0)] = 1

    @property
    def kind(self) -> Kind:
        """The cut series of the Poisson loss."""
        return "poisson"

    def _fits(self, federation: Federation) -> None:
        if federation.schema.target.kind != "number":
            raise ConfigError("the algorithm 'vertical-poisson' is for a target of counts",
                              remedy="use 'vertical-logistic' for classes")
        super()._fits(federation)


@register("algorithm", "vertical-linear", paper="Hardy et al., 2017")
@dataclass(frozen=True, kw_only=True)
class VerticalLinear(VerticalRegression):
    """Linear regression on columns of several parties, under encryption.

    Needs a key holder (`data.partition.key_holder = true`). A round is `local.epochs` passes or `local.steps` batches;
    all keys of [local] act but `clip_norm`, which is refused. Weights stay with their parties.

    Parameters:
        alignment: find the common rows by private set intersection (psi), or take all as they stand (agreed)
        compare: how each id column is compared: exact, text, digits, date, day-first, month-first (none: exact)
        encryption: paillier, ckks or plain: its name, or a table with its name and parameters
        hide_matches: do not reveal to parties which training rows are common: others are masked out under encryption
        patience: stop when the loss has not gone down for this many rounds (0: never, and no loss is worked out)
        loss_rows: at most this many rows (validation rows, where there are any) go into that loss
    """

    @property
    def kind(self) -> Kind:
        """Least squares."""
        return "linear"

    def _fits(self, federation: Federation) -> None:
        if federation.schema.target.kind != "number":
            raise ConfigError("the algorithm 'vertical-linear' is for a numeric target",
                              remedy="use 'vertical-logistic' for classes")
        super()._fits(federation)
