"""Families of algorithms in which parties keep something of their own, and the baselines around them."""

from __future__ import annotations

from .drawing import Picture


def labels() -> Picture:
    """A common core, and heads for the labels that each party knows."""
    picture = Picture(
        190, "Other labels at every party",
        "Three parties share the core of a network, which is averaged. Each keeps a head with one output for every "
        "label it knows: three, two and one. Heads never cross.")
    picture.box(200, 14, 200, 34, "core W: averaged", kind="model")
    for number, count in enumerate((3, 2, 1)):
        left = 40 + 190 * number
        picture.box(left, 76, 140, 36, "core W", kind="model")
        picture.arrow((300 + 60 * (number - 1), 48), (left + 70, 76), both=True, kind="model")
        for head in range(count):
            x = left + 70 + 34 * (head - (count - 1) / 2)
            picture.line((left + 70, 112), (x, 134), kind="secret")
            picture.box(x - 14, 134, 28, 24, f"{'abcdef'[(0, 3, 5)[number] + head]}", kind="secret", style="s")
        picture.text(left + 70, 178, ("labels a, b, c", "labels d, e", "label f")[number], "sm")
    return picture


def own_model() -> Picture:
    """A model beside the common one."""
    picture = Picture(
        196, "A model of one's own",
        "The coordinator has the common model w. Every party has a model v of its own beside it, tied to w by a "
        "spring, and only what concerns w is sent.")
    picture.box(236, 14, 128, 34, "common w", kind="coordinator")
    for number in range(3):
        left = 22 + 192 * number
        picture.box(left, 84, 172, 72, kind="party")
        picture.dot(left + 36, 120, 9, "model", hollow=True)
        picture.dot(left + 132, 120, 9, "model")
        picture.text(left + 36, 147, "w", "si")
        picture.text(left + 132, 147, f"v{'₁₂₃'[number]}", "si")
        coil = [(left + 48 + 6 * k, 120 + (6 if k % 2 else -6)) for k in range(13)]
        picture.line((left + 45, 120), *coil, (left + 123, 120), kind="secret", thick=1.4)
        picture.arrow((300 + 40 * (number - 1), 48), (left + 36 + 40 * (number == 0), 84), both=True,
                      kind="coordinator")
    picture.text(300, 182, "v stays at home; how tightly it is tied to w differs by method", "sm")
    return picture


def own_layers() -> Picture:
    """Which layers stay at the party."""
    picture = Picture(
        206, "Layers of one's own",
        "Three networks of five layers. In fedper and fedrep the last layer stays at the party; fedrep trains it "
        "first, while the others rest. In fedbn the layers of batch normalisation stay.")
    for number, (name, private) in enumerate((("fedper", (4,)), ("fedrep", (4,)), ("fedbn", (1, 3)))):
        left = 34 + 190 * number
        for layer in range(5):
            kind = "secret" if layer in private else "model"
            picture.bar(left + 30 * layer, 40, 22, 86, kind)
            if layer < 4:
                picture.line((left + 22 + 30 * layer, 83), (left + 30 + 30 * layer, 83))
        picture.text(left + 71, 28, name, "sb")
        words = ("all layers train together", "the last first, then the rest", "normalisation stays")[number]
        picture.text(left + 71, 150, words, "sm")
    picture.bar(120, 176, 14, 14, "model")
    picture.text(142, 188, "averaged with the others", "s", anchor="start")
    picture.bar(340, 176, 14, 14, "secret")
    picture.text(362, 188, "stays at the party", "s", anchor="start")
    return picture


def several_models() -> Picture:
    """Parties choose the model that fits them."""
    picture = Picture(
        170, "Several models",
        "The coordinator has two models. Every party trains the one with the least loss on its rows, and each model"
        " is averaged over those who chose it.")
    picture.box(120, 14, 120, 34, "model 1", kind="model")
    picture.box(360, 14, 120, 34, "model 2", kind="coordinator")
    for number, choice in enumerate((1, 1, 2, 1, 2, 2)):
        x = 70 + 92 * number
        picture.box(x - 34, 104, 68, 30, "ABCDEF"[number], kind="model" if choice == 1 else "coordinator")
        picture.arrow((180 if choice == 1 else 420, 48), (x, 104), kind="model" if choice == 1 else "coordinator",
                      both=True)
    picture.text(300, 158, "each party takes the model with the least loss on its own rows", "sm")
    return picture


def protector() -> Picture:
    """Trust by consistency, an increment at home, and a router."""
    picture = Picture(
        206, "Personal and attack-proof",
        "At the coordinator parties that behave inconsistently lose weight. At a party a router decides for every "
        "row whether the global model or the global model with the private increment answers.")
    picture.text(150, 28, "at the coordinator", "sb", colour="coordinator")
    picture.text(440, 28, "at a party", "sb", colour="party")
    for number, (weight, kind) in enumerate(((70, "party"), (62, "party"), (66, "party"), (6, "secret"))):
        picture.bar(52 + 44 * number, 120 - weight, 30, weight, kind, solid=True)
        picture.text(67 + 44 * number, 138, "ABCD"[number], "sm")
    picture.line((44, 120), (222, 120), thick=1.2)
    picture.text(134, 166, "weights by consistency", "s")
    picture.text(134, 184, "from round to round", "s")
    picture.line((262, 20), (262, 190), dashed=True, thick=1.2)
    picture.cells(282, 92, 4, 1, (12, 18))
    picture.text(306, 130, "a row", "sm")
    picture.box(360, 78, 84, 46, "router", kind="plain")
    picture.box(478, 42, 108, 46, "global", kind="model")
    picture.box(478, 114, 108, 52, "global +", "own increment", kind="party")
    picture.arrow((332, 101), (360, 101))
    picture.arrow((444, 92), (478, 68))
    picture.arrow((444, 110), (478, 136))
    return picture


def statistics() -> Picture:
    """Counts that add up."""
    picture = Picture(
        170, "Statistics",
        "Parties send counts of their values by bin. The coordinator adds them up to the histogram of everybody; no"
        " value leaves a party.")
    heights = ((8, 30, 44, 16, 4), (20, 36, 18, 8, 2), (2, 6, 24, 38, 14))
    for number, own in enumerate([*heights, tuple(sum(one) for one in zip(*heights, strict=True))]):
        left = 20 + 140 * number + 20 * (number == 3)
        for place, height in enumerate(own):
            picture.bar(left + 20 * place, 120 - height, 16, height, "coordinator" if number == 3 else "party",
                        solid=number == 3)
        picture.text(left + 48, 142, ("party A", "party B", "party C", "all of them")[number], "s")
        picture.text(left + 118 + 10 * (number == 2), 96, ("+", "+", "=", "")[number], "b") if number < 3 else None
    return picture


def pooled_or_meta() -> Picture:
    """One fit of all sums, or a mean of fits."""
    picture = Picture(
        206, "Pooled or meta-analysis",
        "Left: three parties send sums over their rows, and one model is fitted to the total, step by step. Right: "
        "each party fits a model of its own, and their estimates are averaged by how sure they are.")
    picture.text(150, 24, "pooled: sums, one fit", "sb")
    picture.text(450, 24, "meta-analysis: fits, one mean", "sb")
    picture.line((300, 14), (300, 192), dashed=True, thick=1.2)
    for number in range(3):
        left = 30 + 84 * number
        picture.box(left, 130, 72, 50, "ABC"[number], "sums", kind="party")
        picture.arrow((left + 36, 130), (150, 88), kind="coordinator")
        picture.box(left + 300, 130, 72, 50, "ABC"[number], "b ± se", kind="party")
        picture.arrow((left + 336, 130), (450, 88), kind="coordinator")
    picture.box(96, 44, 108, 44, "Newton step", kind="coordinator")
    picture.box(386, 44, 128, 44, "weighted mean", kind="coordinator")
    picture.text(150, 198, "repeated until nothing moves", "sm")
    picture.text(450, 198, "once, and how much they differ", "sm")
    return picture


def baselines() -> Picture:
    """Alone, federated, centralised."""
    picture = Picture(
        200, "Between two baselines",
        "Three panels. Alone: every party trains on its own rows and shares nothing. Federated: parties share "
        "updates with a coordinator. Centralised: all rows lie in one place.")
    for number, name in enumerate(("alone", "federated", "centralised")):
        left = 14 + 196 * number
        picture.box(left, 14, 180, 146, kind="plain")
        picture.text(left + 90, 184, name, "sb")
        if name == "centralised":
            picture.cells(left + 55, 88, 5, 6, (14, 10))
            picture.dot(left + 90, 44, 11, "model")
            picture.arrow((left + 90, 88), (left + 90, 58), kind="rows")
            continue
        for place, rows in enumerate((2, 3, 1)):
            x = left + 36 + 54 * place
            picture.cells(x - 18, 122, 3, rows, (12, 9))
            picture.dot(x, 96, 8, "model", hollow=name == "federated")
            picture.line((x, 122), (x, 106), kind="rows")
            if name == "federated":
                picture.arrow((left + 90 + 12 * (place - 1), 52), (x, 86), both=True, kind="model")
        if name == "federated":
            picture.dot(left + 90, 42, 11, "model")
    return picture


PICTURES = {"labels": labels, "own-model": own_model, "own-layers": own_layers, "several-models": several_models,
            "protector": protector, "statistics": statistics, "pooled-or-meta": pooled_or_meta, "baselines": baselines}
