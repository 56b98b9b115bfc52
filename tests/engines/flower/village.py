"""A federation without Flower: nodes in this process that answer letters with real sites."""

from __future__ import annotations

from itertools import count

from tequio.engines.flower.transport import NodeReply
from tequio.engines.network.homes import PartyHome
from tequio.experiments.deploying.flower_party import open_party

DEALT = """
seed = 3
rounds = 2
[data]
name = "digits"
one_class = "allow"
[data.partition]
name = "dirichlet"
parties = 3
"""

CONFIGS = {
    "fedavg": '[learner]\nname = "mlp"\nhidden = [16]\n',
    "icdta4fl": '[algorithm]\nname = "icdta4fl"\n[learner]\nname = "cart"\ndepth = 3\n',
    "kmeans": '[algorithm]\nname = "kmeans"\nclusters = 10\n',
    "one-shot-sum": '[[stages]]\nname = "one-shot-sum"\n',
}


def write_configs(folder):
    for name, text in CONFIGS.items():
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n' + DEALT + text)
    return folder


def make_homes(folder, file, parties=3):
    homes = [folder / str(party) for party in range(parties)]
    for party, home in enumerate(homes):
        PartyHome.create(home, str(party), {"data": {"config": str(file)}})
    return homes


class Village:
    """A post whose nodes answer at once, unless they are told to be silent, to fail, or to be gone."""

    def __init__(self, **nodes):
        self.people = {int(number): answer for number, answer in nodes.items()}
        self.silent, self.failing, self.sent = set(), {}, []
        self.out_of_order = 0
        self._answers, self._numbers = {}, count(1)

    def nodes(self):
        if self.out_of_order:
            self.out_of_order -= 1
            raise ConnectionError("no federation")
        return set(self.people)

    def send(self, node, request):
        name = f"letter-{next(self._numbers)}"
        self.sent.append((node, request))
        if node in self.failing and request.message is not None:
            self._answers[name] = NodeReply(name, error=self.failing[node])
        elif node not in self.silent and node in self.people:
            self._answers[name] = self.people[node](name, request)
        return name

    def fetch(self, requests):
        return [self._answers.pop(name) for name in requests if name in self._answers]


def living_at(home):
    """A node that opens its party's folder anew for every letter, as a SuperNode does."""
    return lambda name, request: NodeReply(name, open_party(home)(request.frames))
