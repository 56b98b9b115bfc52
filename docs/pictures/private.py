"""Sums that hide their parts, numbers under encryption, noise, columns of several parties, and trees."""

from __future__ import annotations

from .drawing import Picture


def masks() -> Picture:
    """Masks that cancel, with numbers that can be checked."""
    picture = Picture(
        300, "Masks that cancel",
        "Three parties hold the updates 3, 5 and 9. Each pair shares a mask that one adds and the other subtracts, "
        "modulo 100. The parties send 12, 81 and 24, which tell nothing; their sum modulo 100 is 17, the sum of the"
        " updates.")
    picture.text(300, 26, "all numbers modulo 100", "sm")
    parties = ((100, "A", "3", "3 + 41 + 68", "= 12"), (300, "B", "5", "5 - 41 + 17", "= 81"),
               (500, "C", "9", "9 - 17 - 68", "= 24"))
    for x, name, own, formula, sent in parties:
        picture.box(x - 70, 44, 140, 44, f"{name} has {own}", kind="party")
        picture.text(x, 150, formula, "")
        picture.text(x, 172, sent, "b", colour="secret")
        picture.arrow((x, 180), (300 + (x - 300) * 0.3, 226), kind="secret")
    picture.line((170, 60), (230, 60), kind="rows")
    picture.text(200, 52, "41", "sb", colour="rows")
    picture.line((370, 60), (430, 60), kind="rows")
    picture.text(400, 52, "17", "sb", colour="rows")
    picture.curve("M100 88C100 124 500 124 500 88", kind="rows")
    picture.text(300, 107, "68", "sb", colour="rows")
    picture.text(110, 206, "masked", "sm")
    picture.box(150, 226, 300, 58, "coordinator: 12 + 81 + 24 = 17", "and 3 + 5 + 9 = 17", kind="coordinator")
    return picture


def encryption() -> Picture:
    """A batch of regression under encryption, in five steps."""
    picture = Picture(
        336, "A batch of regression under encryption",
        "Parties send their parts of the residuals encrypted, the coordinator adds them without reading them and "
        "hands the sum back, parties multiply with their own columns and add a random pad, the key holder opens the"
        " padded gradient, and each party takes its pad off. The numbers are those of the steps in the text.")
    for x, name, kind in ((96, "every party", "party"), (300, "coordinator", "coordinator"),
                          (504, "key holder", "secret")):
        picture.line((x, 50), (x, 166 if name == "coordinator" else 292), dashed=True, thick=1.2)
        picture.box(x - 68, 16, 136, 34, name, kind=kind, bold=True)
    for top, start, end, kind in ((92, 96, 300, "secret"), (152, 300, 96, "secret"), (212, 96, 504, "secret"),
                                  (272, 504, 96, "coordinator")):
        picture.dot(start, top, 4, kind)
        picture.arrow((start, top), (end, top), kind=kind)
    picture.text(198, 82, "1 encrypted residuals", "s")
    picture.text(312, 97, "2 adds what it cannot read", "s", anchor="start")
    picture.text(198, 142, "encrypted sum", "s")
    picture.text(292, 202, "3 encrypted: own columns x sum + own pad", "s")
    picture.text(292, 262, "4 opened: the gradient under the pad", "s")
    picture.text(30, 318, "5 takes its pad off and moves its own weights", "s", anchor="start")
    return picture


def noise() -> Picture:
    """Where each mechanism adds its noise."""
    picture = Picture(
        236, "Where noise is added",
        "From rows to steps to an update at the party, to the sum and the model at the coordinator. randomised-"
        "response changes labels, dp-sgd adds noise to steps, local-dp to the update, central-dp and dp-mf to the"
        " sum.")
    picture.box(12, 16, 372, 204, kind="party", dashed=True)
    picture.text(198, 38, "party", "b", colour="party")
    picture.box(396, 16, 192, 204, kind="coordinator", dashed=True)
    picture.text(492, 38, "coordinator", "b", colour="coordinator")
    for x, name, kind in ((28, "rows", "rows"), (154, "steps", "plain"), (280, "update", "model"),
                          (412, "sum", "model"), (512, "model", "model")):
        picture.box(x, 60, 88 if x < 400 else 66, 44, name, kind=kind)
    for start, end in ((116, 154), (242, 280), (368, 412), (478, 512)):
        picture.arrow((start, 82), (end, 82))
    for x, first, second in ((72, "randomised-", "response"), (198, "dp-sgd", "dp-sums"), (324, "local-dp", ""),
                             (445, "central-dp", "dp-mf")):
        picture.arrow((x, 146), (x, 104), kind="secret")
        picture.text(x, 164, first, "sb", colour="secret")
        if second:
            picture.text(x, 182, second, "sb", colour="secret")
    for x, words in ((72, "hides a label"), (198, "hides a row"), (324, "hides a party"), (454, "hides a party")):
        picture.text(x, 208, words, "sm")
    return picture


def columns() -> Picture:
    """Rows against columns, and whom two parties have in common."""
    picture = Picture(
        262, "Different columns of the same people",
        "A bank and an insurer hold different columns. Only some people are known to both. Private set intersection"
        " finds these; the common rows are put in one order, and only the bank has the target.")
    picture.text(96, 28, "bank", "b", colour="party")
    picture.text(330, 28, "insurer", "b", colour="coordinator")
    for number, (left, right) in enumerate((("C1", "C7"), ("C4", "C2"), ("C2", "C9"), ("C6", "C4"), ("C8", "C6"))):
        top = 42 + 26 * number
        common_left, common_right = left in ("C2", "C4", "C6"), right in ("C2", "C4", "C6")
        picture.text(34, top + 15, left, "sb" if common_left else "sm")
        picture.cells(52, top, 3, 1, (24, 20), kind="party" if common_left else "plain")
        picture.cells(124, top, 1, 1, (28, 20), kind="secret" if common_left else "plain")
        picture.text(262, top + 15, right, "sb" if common_right else "sm")
        picture.cells(282, top, 4, 1, (24, 20), kind="coordinator" if common_right else "plain")
    picture.text(88, 190, "columns", "sm")
    picture.text(150, 190, "target", "sm", colour="secret")
    picture.text(330, 190, "columns", "sm")
    picture.arrow((160, 105), (246, 105), both=True, kind="rows")
    picture.text(203, 97, "PSI", "sb", colour="rows")
    picture.arrow((390, 105), (424, 105))
    picture.text(508, 62, "common, one order", "sb")
    for top in (76, 102, 128):
        picture.cells(436, top, 3, 1, (17, 20), kind="party")
        picture.cells(487, top, 1, 1, (19, 20), kind="secret")
        picture.cells(512, top, 4, 1, (17, 20), kind="coordinator")
    picture.text(300, 226, "no id and no row number leaves a party; each keeps its columns at home,", "sm")
    picture.text(300, 246, "and nobody learns whom else the other knows", "sm")
    return picture


def split_network() -> Picture:
    """A network that is cut between parties."""
    picture = Picture(
        250, "The split network",
        "Each party runs the bottom of a network on its own columns. The outputs at the cut go to the label holder,"
        " who runs the top, knows the labels, and sends each party the gradient of its own outputs.")
    for top, name, kind in ((24, "bank", "party"), (148, "insurer", "coordinator")):
        picture.cells(24, top + 14, 4, 5, (15, 10), kind=kind)
        picture.text(54, top + 82, name, "sb")
        picture.box(130, top + 8, 100, 62, "bottom", kind=kind)
        picture.arrow((84, top + 39), (130, top + 39))
        picture.arrow((230, top + 28), (352, 100 if top < 100 else 136), kind="model")
        picture.arrow((352, 116 if top < 100 else 152), (230, top + 52), kind="secret", dashed=True)
    picture.line((290, 20), (290, 232), kind="secret", dashed=True, thick=2.5)
    picture.text(290, 244, "the cut", "s", colour="secret")
    picture.box(352, 88, 100, 76, "top", "label holder", kind="party")
    picture.box(500, 88, 84, 76, "loss", "labels", kind="secret")
    picture.arrow((452, 126), (500, 126), both=True)
    picture.text(312, 60, "activations", "s", anchor="start", colour="model")
    picture.text(312, 206, "gradients back", "s", anchor="start", colour="secret")
    return picture


def transfer() -> Picture:
    """Two parties with few common rows meet in a representation."""
    picture = Picture(
        216, "Transfer",
        "A party with labels and one without hold other columns and mostly other rows. Each maps its columns to a "
        "representation of the same width. On the few common rows both are pulled together and learn from the labels; "
        "the party without labels then scores its own rows.")
    for left, name in ((24, "columns of A, and labels"), (436, "columns of B, no labels")):
        picture.text(left + 70, 26, name, "s")
        picture.cells(left + 20, 40, 5, 12, (20, 11), kind="rows")
    picture.bar(144, 40, 12, 132, "secret")
    picture.text(150, 190, "labels", "sm")
    for y in (106, 117, 128):
        picture.bar(44, y, 112, 11, "coordinator")
        picture.bar(456, y, 100, 11, "coordinator")
    picture.box(196, 92, 84, 50, "net of A", "A → width d", kind="model")
    picture.box(320, 92, 84, 50, "net of B", "B → width d", kind="model")
    picture.arrow((160, 117), (196, 117))
    picture.arrow((452, 117), (404, 117))
    picture.arrow((280, 117), (320, 117), both=True, kind="coordinator")
    picture.text(300, 72, "common rows: pulled together", "sm")
    picture.text(300, 172, "B scores its rows by what A's labels taught", "sm")
    return picture


def vertical_tree() -> Picture:
    """One tree, and what each party sees of it."""
    picture = Picture(
        270, "A tree that nobody has whole",
        "The same tree twice. The hospital sees its own splits and the leaves; the split of the laboratory is "
        "hidden to it. The laboratory sees its own split only, and neither other splits nor leaves.")
    for left, name, sees in ((150, "as the hospital sees it", {"root": "age < 50", "left": "hidden", "leaf": True}),
                             (450, "as the laboratory sees it",
                              {"root": "hidden", "left": "marker < 3", "leaf": False})):
        picture.text(left, 28, name, "sb")
        picture.line((left, 78), (left - 62, 130))
        picture.line((left, 78), (left + 74, 130))
        picture.line((left - 62, 160), (left - 102, 212))
        picture.line((left - 62, 160), (left - 16, 212))
        for x, y, words, mine in ((left, 46, sees["root"], sees["root"] != "hidden"),
                                  (left - 62, 128, sees["left"], sees["left"] != "hidden")):
            kind = "plain" if not mine else "party" if words.startswith("age") else "coordinator"
            picture.box(x - 56, y, 112, 34, str(words), kind=kind, dashed=not mine, style="s")
        for x, y, words in ((left + 74, 128, "0.2"), (left - 102, 210, "0.9"), (left - 16, 210, "0.4")):
            picture.box(x - 34, y, 68, 34, words if sees["leaf"] else "?", kind="model" if sees["leaf"] else "plain",
                        dashed=not sees["leaf"], style="s")
    picture.line((300, 40), (300, 236), dashed=True, thick=1.2)
    picture.text(300, 262, "the hospital holds the labels; predictions need both", "sm")
    return picture


def fused_trees() -> Picture:
    """ICDTA4FL in its four exchanges."""
    picture = Picture(
        290, "One tree from many, in four exchanges",
        "Parties send their local trees, the coordinator sends all trees to all, parties send scores of all trees "
        "on their own rows, and the coordinator drops weak trees, fuses the rules of the others and sends one tree "
        "to all.")
    picture.box(16, 20, 130, 250, kind="party", dashed=True)
    picture.text(81, 42, "parties", "b", colour="party")
    picture.box(424, 20, 160, 250, kind="coordinator", dashed=True)
    picture.text(504, 42, "coordinator", "b", colour="coordinator")
    for number, kind in enumerate(("party", "rows", "model")):
        _tree(picture, 50 + 31 * number, 66, 11, kind)
    picture.text(81, 128, "own trees", "sm")
    picture.text(81, 186, "score all trees", "sm")
    picture.text(81, 204, "on own rows", "sm")
    picture.text(504, 158, "drops weak trees,", "s")
    picture.text(504, 176, "fuses the rules", "s")
    _tree(picture, 504, 204, 26, "coordinator")
    for top, words, up in ((76, "1 local trees", True), (128, "2 all trees", False),
                           (180, "3 scores of all trees", True), (232, "4 one tree, its rules", False)):
        picture.arrow(*((150, top), (420, top)) if up else ((420, top), (150, top)),
                      kind="party" if up else "coordinator")
        picture.text(285, top - 8, words, "s")
    return picture


def _tree(picture: Picture, x: float, y: float, size: float, kind: str) -> None:
    for side in (-1, 1):
        picture.line((x, y), (x + side * size, y + 1.6 * size), kind=kind, thick=1.5)
        picture.dot(x + side * size, y + 1.6 * size, size / 3.4, kind, hollow=True)
    picture.dot(x, y, size / 3.4, kind)


PICTURES = {"secure-aggregation": masks, "encryption": encryption, "privacy": noise, "vertical": columns,
            "split-network": split_network, "transfer": transfer, "vertical-trees": vertical_tree, "trees": fused_trees}
