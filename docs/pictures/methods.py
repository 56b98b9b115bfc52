"""Families of algorithms: how updates become one model."""

from __future__ import annotations

from itertools import pairwise
from math import cos, pi, sin

from .drawing import Picture


def averaging() -> Picture:
    """One step each, or many steps each; then the mean."""
    picture = Picture(
        176, "Averaging",
        "On the left fedsgd: every party takes one gradient step from the common model, and the mean of the steps "
        "is taken. On the right fedavg: every party takes several steps before the mean is taken, and ends further "
        "away.")
    for left, name, steps in ((30, "fedsgd: one step each", 1), (320, "fedavg: several steps each", 4)):
        start, ends = (left + 20, 78), [(left + 120 + 40 * (steps > 1), y) for y in (34, 78, 122)]
        for number, end in enumerate(ends):
            points = [start] + [(start[0] + (end[0] - start[0]) * k / steps, start[1] + (end[1] - start[1]) * k / steps
                                 + (5 if k % 2 else -5) * (k < steps) * (number + 1) / 2) for k in range(1, steps + 1)]
            picture.arrow(*points, kind="party")
            picture.line(end, (left + 218, 78), dashed=True, thick=1.2)
        picture.dot(*start, 7, "model")
        picture.dot(left + 218, 78, 8, "model")
        picture.text(left + 16, 104, "w", "i")
        picture.text(left + 230, 106, "new w", "i")
        picture.text(left + 120, 162, name, "s")
    return picture


def drift() -> Picture:
    """What pulls parties back."""
    picture = Picture(
        206, "Against drift",
        "Three panels. Parties A and B are pulled to optima of their own. fedprox ties them to the model they "
        "received, scaffold corrects every step by the difference of two estimated gradients, feddyn bends each "
        "objective until both optima meet.")
    for number, (name, words) in enumerate((("fedprox", "a spring to w"), ("scaffold", "steps are corrected"),
                                            ("feddyn", "optima are moved"))):
        left = 14 + 196 * number
        picture.box(left, 14, 180, 146, kind="plain")
        start, own = (left + 90, 136), ((left + 32, 44), (left + 148, 44))
        for optimum, letter in zip(own, "AB", strict=True):
            picture.dot(*optimum, 6, "rows", hollow=True)
            picture.text(optimum[0], optimum[1] - 11, letter, "sm")
        both = ((left + 90, 52), (left + 90, 52))
        ends = {"fedprox": ((left + 62, 82), (left + 118, 82)), "scaffold": ((left + 80, 72), (left + 100, 72)),
                "feddyn": both}[name]
        for optimum, end in zip(own, ends, strict=True):
            picture.line(start, optimum, dashed=True, thick=1.2)
            if name == "feddyn":
                picture.arrow(optimum, (end[0] + (10 if optimum[0] > end[0] else -10), 50), kind="secret")
            picture.arrow(start, end, kind="party")
            if name == "scaffold":
                picture.arrow(((start[0] + optimum[0]) / 2, 90), (end[0], 90), kind="secret")
        if name == "fedprox":
            for side in (-1, 1):
                coil = [(start[0] + side * (8 + 3 * k) + (4 if k % 2 else -4), start[1] - 2 - 5 * k) for k in range(9)]
                picture.line(*coil, kind="secret", thick=1.4)
        picture.dot(*start, 7, "model")
        picture.text(start[0] + 18, start[1] + 6, "w", "si")
        picture.text(left + 90, 180, name, "sb")
        picture.text(left + 90, 197, words, "sm")
    return picture


def unequal_work() -> Picture:
    """Who takes more steps pulls harder, unless changes are divided by steps."""
    picture = Picture(
        176, "Unequal work",
        "Party A takes two steps and party B six. The plain mean is pulled towards B. fednova divides each change "
        "by its number of steps, so that both pull alike.")
    for left, name, normalised in ((20, "fedavg: B pulls harder", False), (315, "fednova: both pull alike", True)):
        start = (left + 30, 130)
        for steps, (dx, dy), letter in ((2, (8, -28), "A"), (6, (34, -7), "B")):
            count = steps if not normalised else 4
            points = [(start[0] + dx * k, start[1] + dy * k) for k in range(steps + 1)]
            picture.line(*points, kind="party", dashed=normalised, thick=1.4)
            for point in points[1:]:
                picture.dot(*point, 3.5, "party", hollow=normalised)
            end = (start[0] + dx * count, start[1] + dy * count)
            picture.arrow(start, end, kind="party", thick=2.4)
            picture.text(points[-1][0] + 12, points[-1][1] - 4, letter, "sb")
        mean = (start[0] + 84, start[1] - 70) if normalised else (start[0] + 110, start[1] - 49)
        picture.arrow(start, mean, kind="model", thick=2.8)
        picture.dot(*start, 7, "model")
        picture.text(left + 130, 164, name, "s")
    return picture


def optimizers() -> Picture:
    """Mean changes taken as they are, and with a memory."""
    picture = Picture(
        170, "Optimizers at the coordinator",
        "The mean change of each round is used like a gradient. Taken as it is, the path zigzags; with momentum and"
        " step sizes of each weight it goes more straight to the optimum.")
    for left, name, path, kind in ((30, "the mean change as it is",
                                    ((0, 120), (46, 30), (84, 116), (122, 44), (152, 104), (180, 60)), "party"),
                                   (320, "with momentum, a step size a weight",
                                    ((0, 120), (42, 66), (92, 66), (140, 82), (196, 76)), "model")):
        for size in (1.0, 0.66, 0.33):
            width, height = 62 * size, 46 * size
            half = f"a{width:.0f} {height:.0f} 0 1 0 "
            picture.curve(f"M{left + 206 - width:.0f} 76{half}{2 * width:.0f} 0{half}{-2 * width:.0f} 0", thick=0.9)
        for first, second in pairwise(path):
            picture.arrow((left + first[0], first[1]), (left + second[0], second[1]), kind=kind)
        picture.dot(left, 120, 6, "model")
        picture.text(left + 112, 156, name, "s")
    return picture


def peers() -> Picture:
    """A graph that mixes, and a ring on which one model travels."""
    picture = Picture(
        200, "Peers without a coordinator",
        "On the left gossip: six peers, each with a model of its own, mix with their neighbours on this round's "
        "graph. On the right cyclic: one model travels round a ring, and each peer trains it before passing it on.")
    for left, name in ((150, "gossip: everyone mixes with neighbours"), (450, "cyclic: one model goes round")):
        places = [(left + 92 * cos(pi * k / 3), 88 + 62 * sin(pi * k / 3)) for k in range(6)]
        if left < 300:
            for first, second in ((0, 1), (1, 2), (2, 4), (3, 4), (4, 5), (0, 3), (5, 1)):
                picture.line(places[first], places[second], kind="model")
        else:
            for first, second in zip(places, places[1:] + places[:1], strict=True):
                dx, dy = second[0] - first[0], second[1] - first[1]
                picture.arrow((first[0] + 0.2 * dx, first[1] + 0.2 * dy),
                              (second[0] - 0.2 * dx, second[1] - 0.2 * dy), kind="model")
        for number, place in enumerate(places):
            picture.dot(*place, 13, "party", hollow=True)
            if left < 300 or number == 0:
                picture.dot(*place, 5, "model")
        picture.text(left, 188, name, "s")
    return picture


def clustering() -> Picture:
    """Sums and counts by cluster."""
    picture = Picture(
        176, "Federated k-means",
        "Two parties hold points of the same two clusters. Each sends for every cluster the sum and the number of "
        "its points; the new centre is the mean over all points, wherever they lie.")
    points = (((40, 50), (62, 36), (56, 72), (150, 116), (166, 98)),
              ((48, 60), (70, 58), (140, 104), (158, 122), (174, 112), (148, 88)))
    for left, name, own in ((10, "party A", points[0]), (210, "party B", points[1])):
        picture.box(left, 16, 184, 122, kind="party")
        for x, y in own:
            picture.dot(left + x, y, 4, "rows")
        picture.text(left + 92, 158, name, "s")
    for left, own in ((10, points[0]), (210, points[1])):
        for near in (True, False):
            group = [point for point in own if (point[0] < 100) == near]
            centre = (left + sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
            picture.dot(*centre, 8, "party", hollow=True)
    picture.box(410, 16, 180, 122, kind="coordinator")
    for near in (True, False):
        group = [point for own in points for point in own if (point[0] < 100) == near]
        picture.dot(408 + sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group), 9, "model")
    picture.text(500, 158, "sums over counts", "s")
    return picture


def fairness() -> Picture:
    """Whoever fares badly gets more weight."""
    picture = Picture(
        190, "Fair to all",
        "Bars of the loss of five parties, and beside them the weights: by rows, and as q-fedavg or agnostic give "
        "them, which raise those with a high loss.")
    losses, by_rows, fair = (30, 44, 96, 38, 70), (60, 44, 22, 70, 26), (24, 34, 92, 30, 62)
    for left, name, heights, kind in ((30, "loss at each party", losses, "secret"),
                                      (226, "weights by rows", by_rows, "plain"), (422, "fair weights", fair, "party")):
        for number, height in enumerate(heights):
            picture.bar(left + 30 * number, 140 - height, 22, height, kind, solid=kind != "plain")
            picture.text(left + 11 + 30 * number, 157, "ABCDE"[number], "sm")
        picture.line((left - 6, 140), (left + 150, 140), thick=1.2)
        picture.text(left + 72, 180, name, "s")
    return picture


PICTURES = {"averaging": averaging, "drift": drift, "unequal-work": unequal_work, "optimizers": optimizers,
            "peers": peers,
            "clustering": clustering, "fairness": fairness}
