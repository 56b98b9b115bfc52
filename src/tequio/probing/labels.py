"""Labels read by a party that holds none: from gradients, from its own part of the model, and from the rows of nodes.

Successes are areas under the ROC curve over the training rows whose labels the party does not know, of the second class
against all others: means over draws of the rows that it knows, with a bootstrap interval over draws and rows. What it
reaches with its own columns and the same known labels is put beside them as guessing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from tequio.algorithms.vertical.split_nn import Bottom, SplitNN
from tequio.algorithms.vertical.trees.offering import follow, roots_of
from tequio.attacks.label_leakage import area_under_curve, averaged_scores, completed_scores, leaked
from tequio.attacks.model_completion import MixMatch
from tequio.errors import ConfigError
from tequio.federation.rng import stream
from tequio.learners.dense import forward
from tequio.probing.overheard import ProbeOfVertical, known_rows, overheard, without_labels
from tequio.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tequio.algorithms.vertical.trees.offering import Splits
    from tequio.experiments.running.results import Result
    from tequio.probing.overheard import Overheard
    from tequio.probing.probe import View

_DRAWS, _RESAMPLED = 20, 400


@dataclass(frozen=True)
class ProbeOfLabels(ProbeOfVertical):
    """A party without labels infers them.

    Parameters:
        known: rows whose labels the party happens to know, half of them of the second class
        party: which party attacks (left out: the first without labels)
    """

    known: Annotated[int, Ge(2)] = 20
    party: str = ""

    def areas(self, heard: Overheard, judge: Callable[[NDArray[np.bool_]], NDArray[np.float64]]) -> dict[str, float]:
        """How well the scores that `judge` gives by some known labels tell the others, and those of own columns do."""
        positive, own = heard.labels(), heard.columns(without_labels(heard, self.party))
        rng, found, guesses = stream(heard.federation.population.seed, "probe bootstrap"), [], []
        draws = []
        for known in known_rows(heard, positive, self.known, _DRAWS):
            draws.append((judge(known)[~known], positive[~known]))
            found.append(area_under_curve(*draws[-1]))
            guesses.append(area_under_curve(completed_scores(own, positive, known)[~known], positive[~known]))
        spread = []
        for draw in rng.integers(_DRAWS, size=_RESAMPLED):
            scores, truth = draws[draw]
            rows = rng.integers(len(truth), size=len(truth))
            spread.append(area_under_curve(scores[rows], truth[rows]))
        low, high = np.quantile(spread, [0.025, 0.975])
        return {"success": float(np.mean(found)), "low": float(low), "high": float(high),
                "guess": float(np.mean(guesses)), "attempts": float(len(draws[0][0]))}


@register("probe", "label-inference", paper="Li et al., 2022")
@dataclass(frozen=True)
class LabelInference(ProbeOfLabels):
    """What are the labels? From the gradients that a split network, or transfer, sends to a party without them.

    A row's gradients are averaged over all batches, which takes off noise that is drawn anew each time. Beside it stand
    the attacks on single batches, by length (`norm`) and by direction beside one known row (`direction`).
    """

    algorithms: ClassVar[tuple[str, ...]] = ("split-nn", "transfer")
    assumes: ClassVar[str] = "its own columns, the gradients of all rounds, and a few labels, which say which way round"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All batches of the run."""
        heard = overheard(result)
        batches = gradients_of(heard, without_labels(heard, self.party))
        positive = heard.labels()
        scores = averaged_scores(batches, len(positive))

        def judge(known: NDArray[np.bool_]) -> NDArray[np.float64]:
            return scores if area_under_curve(scores[known], positive[known]) >= 0.5 else -scores

        single = leaked((gradients, positive[positions]) for positions, gradients in batches)
        return {**self.areas(heard, judge), "norm": single["norm"], "direction": single["direction"]}


@register("probe", "model-completion", paper="Fu et al., 2022")
@dataclass(frozen=True)
class ModelCompletion(ProbeOfLabels):
    """What are the labels? From a party's own part of a split network, completed with a few known labels.

    No noise on gradients is against this as long as the model learns: the part has learned what tells labels.

    Parameters:
        unlabelled: learn from the rows without known labels, too, and train the part further, by MixMatch
    """

    unlabelled: bool = False

    algorithms: ClassVar[tuple[str, ...]] = ("split-nn",)
    assumes: ClassVar[str] = "its own columns and its own layers, and a few labels"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """The layers as the run left them."""
        heard = overheard(result)
        party, algorithm, positive = without_labels(heard, self.party), heard.algorithm, heard.labels()
        assert isinstance(algorithm, SplitNN)
        layers = heard.party(party).recall(Bottom)["layers"]
        columns, activation = heard.columns(party), algorithm.activation
        if self.unlabelled:
            rng = stream(heard.federation.population.seed, "probe completion")
            return self.areas(heard, lambda known: MixMatch().scores(layers, activation, columns, positive, known, rng))
        outputs = forward(layers, columns, activation).output
        return self.areas(heard, lambda known: completed_scores(outputs, positive, known))


@register("probe", "instance-spaces", paper="Cheng et al., 2021; Takahashi et al., 2023")
@dataclass(frozen=True)
class InstanceSpaces(ProbeOfLabels):
    """What are the labels? From which rows share the nodes of boosted trees, as every party sees it.

    Rows are told apart by the node that they reach in each tree, as deep as the party can follow them; `first_tree` is
    the same with the first tree alone.
    """

    algorithms: ClassVar[tuple[str, ...]] = ("secureboost",)
    assumes: ClassVar[str] = "its own columns, which rows share a node of which tree, and a few labels"

    def attempt(self, result: Result, view: View) -> dict[str, float]:
        """All trees of the run."""
        heard = overheard(result)
        positive, reached = heard.labels(), nodes_reached(heard, without_labels(heard, self.party))
        if not reached:
            raise ConfigError("the other parties took part in no tree", remedy="set rounds to 2 or more")
        spaces = [np.equal.outer(nodes, np.unique(nodes)).astype(np.float64) for nodes in reached]
        everything = np.concatenate(spaces, axis=1)
        found = self.areas(heard, lambda known: completed_scores(everything, positive, known))
        first = self.areas(heard, lambda known: completed_scores(spaces[0], positive, known))
        return {**found, "first_tree": first["success"]}


def gradients_of(heard: Overheard, party: int) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Each batch's rows with their gradients, which a party without labels gets together with the next batch."""
    batches: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    pending = None
    for message in heard.sent_to(party):
        if message.task in ("split-nn.step", "transfer.represent"):
            if "gradient" in message.payload and pending is not None:
                batches.append((pending, message.payload["gradient"]))
            pending = message.payload.get("positions")
    return batches


def nodes_reached(heard: Overheard, party: int) -> list[NDArray[np.int32]]:
    """For each tree that a party helped to grow, the node of each row as deep as the party can follow it."""
    grown: list[NDArray[np.int32]] = []
    node_of = deepest = None
    for message in heard.sent_to(party):
        asked = message.payload
        if message.task == "vertical trees: offer":
            if "hidden" in asked:
                grown += [] if deepest is None else list(deepest)
                node_of = roots_of(len(asked["block_of"]), len(heard.columns(party)))
            if node_of is not None and "splits" in asked:
                node_of = follow(node_of, asked["splits"], "the attacker")
            deepest = node_of
        elif message.task == "vertical trees: divide" and node_of is not None:
            # Of the last level a party knows its own splits only. Their children get numbers that no node has.
            own: Splits = {"trees": asked["trees"], "nodes": asked["nodes"], "left": 10**6 + 2 * asked["nodes"],
                           "ways": message.reply["ways"]}
            deepest = follow(node_of, own, "the attacker")
    return grown if deepest is None else [*grown, *deepest]
