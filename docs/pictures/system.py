"""How tequio is built and runs: layers, the path of a round, processes, links, and why numbers stay the same."""

from __future__ import annotations

from .drawing import Picture

_LAYERS = (("cli", "one file a command", "plain"), ("views", "plots, reports, the dashboard", "plain"),
           ("studies, bench", "published numbers, our own speed", "plain"),
           ("probing", "attacks on the privacy of finished runs", "secret"),
           ("sklearn", "estimators for scikit-learn", "plain"),
           ("experiments", "configs, runs, sweeps, comparisons", "plain"),
           ("models", "what a run ends with, to be asked and used", "model"),
           ("attacks", "what hostile parties do", "secret"),
           ("algorithms", "programs at the coordinator", "coordinator"),
           ("engines", "carry tasks and replies", "coordinator"),
           ("gate", "what passes a party, by its policy", "party"),
           ("privacy", "encryption, masks, noise, compression", "secret"),
           ("federation", "parties, tasks, payloads, ask", "party"),
           ("learners", "models that a party trains", "model"),
           ("data", "datasets, partitions, splits", "rows"),
           ("noise", "coins and exact noise in whole numbers", "secret"),
           ("registry", "components by name, from plain parameters", "plain"),
           ("errors", "one tree, each with a remedy", "plain"))


def architecture() -> Picture:
    """The layers of the package."""
    picture = Picture(
        591, "Layers of tequio",
        "Eighteen layers from cli at the top to errors at the bottom. Each layer imports only from layers below it.")
    for number, (name, what, kind) in enumerate(_LAYERS):
        top = 16 + 31 * number
        picture.box(70, top, 140, 26, name, kind=kind, style="s", bold=True)
        picture.text(224, top + 18, what, "s", anchor="start")
    picture.arrow((40, 24), (40, 565), kind="coordinator", thick=2.5)
    picture.text(540, 206, "imports", "sm")
    picture.text(540, 224, "only", "sm")
    picture.text(540, 242, "downwards", "sm")
    return picture


def path_of_a_round() -> Picture:
    """Who does what in one round."""
    picture = Picture(
        330, "The path of a round",
        "The algorithm at the coordinator asks, the federation cuts the cohort into chunks and gives orders to the "
        "engine, the engine brings them to processes next to the data, replies go back through stages, and the "
        "algorithm aggregates. The numbers are those of the steps in the text.")
    picture.text(128, 28, "coordinator", "b", colour="coordinator")
    picture.text(495, 28, "where the rows are", "b", colour="party")
    picture.box(42, 42, 172, 52, "1 algorithm.round", "2 select, ask", kind="coordinator")
    picture.box(42, 134, 172, 60, "3 federation", "fixed chunks, orders", kind="coordinator")
    picture.box(42, 234, 172, 76, "5 federation", "party order, quorum,", "stages undone", kind="coordinator")
    picture.box(258, 134, 84, 60, "engine", "carries", kind="plain")
    picture.box(258, 246, 84, 52, "engine", "carries", kind="plain")
    picture.box(400, 108, 180, 112, "4 a task by its name", "on the party's rows;", "stages, check of what",
                "crosses, exact bytes", kind="party")
    picture.cells(440, 256, 6, 5, (17, 9))
    picture.text(582, 282, "rows", "s", anchor="end", colour="rows")
    picture.arrow((128, 94), (128, 134))
    picture.arrow((214, 164), (258, 164))
    picture.arrow((342, 164), (400, 164))
    picture.arrow((490, 256), (490, 220), kind="rows")
    picture.arrow((420, 220), (420, 272), (342, 272))
    picture.arrow((258, 272), (214, 272))
    picture.arrow((42, 272), (20, 272), (20, 68), (42, 68))
    picture.text(230, 60, "6 aggregate, step, finish:", "s", anchor="start")
    picture.text(230, 78, "the next state", "s", anchor="start")
    picture.text(370, 154, "order", "sm")
    picture.text(380, 264, "reply", "sm")
    return picture


def engine() -> Picture:
    """Processes, shared rows, and batched training."""
    picture = Picture(
        322, "The local engine",
        "The coordinator's process gives orders to worker processes over shared memory. All read the rows from one "
        "memory-mapped file. Inside a worker several parties train in one batched product.")
    picture.box(16, 20, 214, 84, "your process", "algorithm, private states", "of parties, its share of work",
                kind="coordinator", bold=True)
    picture.box(352, 20, 230, 38, "worker: one thread", kind="party")
    picture.box(352, 66, 230, 38, "worker: one thread", kind="party")
    picture.arrow((230, 39), (352, 39), both=True)
    picture.arrow((230, 85), (352, 85), both=True)
    picture.text(291, 66, "shared memory", "sm")
    picture.box(150, 134, 300, 34, "rows, once, in memory-mapped files", kind="rows", style="s")
    picture.arrow((180, 134), (120, 104), kind="rows")
    picture.arrow((420, 134), (460, 104), kind="rows")
    picture.text(20, 202, "Many parties in one call", "b", anchor="start")
    for number in range(4):
        left = 70 + 9 * number
        picture.cells(left, 226 + 9 * (3 - number), 4, 3, (15, 11), kind="rows")
        picture.cells(left + 150, 226 + 9 * (3 - number), 3, 4, (15, 8), kind="model")
        picture.cells(left + 290, 226 + 9 * (3 - number), 3, 3, (15, 11), kind="party")
    picture.text(190, 254, "x", "b")
    picture.text(330, 254, "=", "b")
    picture.text(452, 246, "one product,", "s", anchor="start")
    picture.text(452, 264, "not four", "s", anchor="start")
    picture.text(112, 308, "rows of 4 parties", "sm")
    picture.text(258, 308, "their weights", "sm")
    picture.text(398, 308, "their outputs", "sm")
    return picture


def network() -> Picture:
    """Parties dial in over mutual TLS."""
    picture = Picture(
        318, "Links of a federation between machines",
        "Each party dials out through its own firewall to the coordinator and keeps one stream open, over TLS with "
        "certificates on both sides. Orders carry a task's name and a payload. At the party a policy decides, the "
        "task runs next to the rows, and state and reply are written to disk first.")
    picture.box(16, 92, 148, 96, "coordinator", "authority,", "checkpoints with", "no party's state",
                kind="coordinator", bold=True)
    for number, name in enumerate(("north", "south", "east")):
        top = 16 + 96 * number
        picture.line((338, top - 4), (338, top + 80), kind="secret", dashed=True, thick=2.5)
        picture.box(356, top, 70, 76, "policy", kind="secret", style="s")
        picture.box(434, top, 72, 76, "task", name, kind="party")
        picture.box(514, top, 72, 34, "rows", kind="rows", style="s")
        picture.box(514, top + 42, 72, 34, "journal", kind="plain", style="s")
        picture.arrow((356, top + 38), (164, 124 + 16 * number), kind="coordinator", both=True)
    picture.text(222, 50, "parties dial out", "sm")
    picture.text(190, 268, "one stream each,", "sm")
    picture.text(190, 286, "mutual TLS", "sm")
    picture.text(84, 212, "sends names of", "sm")
    picture.text(84, 230, "tasks, no code", "sm")
    picture.text(338, 308, "firewalls", "sm")
    return picture


def gate() -> Picture:
    """What the gate at a party looks at before a task runs and before its reply leaves."""
    picture = Picture(
        258, "The gate at a party",
        "Everything that the coordinator sends passes the gate at the party: an announcement and tasks. The gate looks "
        "at what only the party knows: its policy, its own split, and the ledger of its rows. The task then runs on "
        "the rows, and the reply passes the gate on its way back. What is refused goes back with a reason.")
    picture.box(16, 70, 118, 116, "coordinator", "may say", "anything", kind="coordinator", bold=True)
    picture.box(246, 40, 146, 178, "gate", "hash of the run", "what is revealed", "what covers that",
                "rows behind a reply", "no file, no code", kind="secret", bold=True)
    picture.box(488, 44, 98, 56, "task", "by its name", kind="party")
    picture.cells(512, 132, 5, 4, (10, 9))
    picture.text(537, 188, "rows", "s", colour="rows")
    picture.arrow((134, 94), (246, 94), kind="coordinator")
    picture.text(190, 84, "announces", "sm")
    picture.arrow((246, 130), (134, 130), kind="secret", dashed=True)
    picture.text(190, 148, "refused: why", "sm")
    picture.arrow((392, 60), (488, 60))
    picture.arrow((488, 86), (392, 86))
    picture.text(440, 104, "reply", "sm")
    picture.arrow((537, 132), (537, 100), kind="rows")
    picture.arrow((246, 172), (134, 172))
    picture.text(190, 190, "what may leave", "sm")
    picture.text(319, 240, "policy, own split, ledger of the rows", "sm")
    return picture


def determinism() -> Picture:
    """One worker or three: the same streams, the same order of the sum, the same model."""
    picture = Picture(
        272, "Same seed, same numbers",
        "One worker handles parties 0 to 4 one after another; three workers handle them in another order. Each "
        "party draws from its own stream, keyed by seed, purpose, round and party. Replies are put in party order "
        "before they are summed, so both ways give the same model.")
    picture.text(20, 30, "one worker", "b", anchor="start")
    for number in range(5):
        picture.box(20 + 50 * number, 42, 46, 30, str(number), kind="party")
    picture.text(20, 110, "three workers", "b", anchor="start")
    for lane, places in enumerate(({20: "2", 70: "4"}, {20: "0", 104: "3"}, {54: "1"})):
        for left, party in places.items():
            picture.box(left, 122 + 36 * lane, 46, 30, party, kind="party")
    picture.box(322, 78, 146, 84, "in party order", "0 + 1 + 2 + 3 + 4", "in 64 bits", kind="coordinator", style="s")
    picture.box(502, 88, 84, 64, "model", "same bits", kind="model")
    picture.arrow((272, 58), (322, 98))
    picture.arrow((212, 166), (322, 140))
    picture.arrow((468, 120), (502, 120))
    picture.text(300, 256, "every draw comes from stream(seed, purpose, round, party)", "sm")
    return picture


PICTURES = {"architecture": architecture, "path-of-a-round": path_of_a_round, "engine": engine, "network": network,
            "gate": gate, "determinism": determinism}
