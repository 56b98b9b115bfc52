"""What happens in rounds: what crosses, who is chosen, how long it takes, and which rows are for what."""

from __future__ import annotations

from .drawing import Picture


def what_crosses() -> Picture:
    """Names, arrays and plain values cross; rows, live objects and code do not."""
    picture = Picture(
        262, "What crosses and what never does",
        "From the coordinator to the party go a task's name, settings and a model. Back come an update, counts and "
        "losses. Rows, live objects, pickles and code do not cross; the check is at the party.")
    picture.box(16, 60, 132, 130, "coordinator", "model, algorithm,", "no row", kind="coordinator", bold=True)
    picture.box(440, 24, 144, 206, kind="party")
    picture.text(512, 48, "party", "b")
    picture.box(454, 62, 116, 44, "task", "installed here", kind="plain")
    picture.cells(470, 124, 5, 6, (17, 10))
    picture.text(512, 204, "rows", "s", colour="rows")
    picture.line((408, 24), (408, 230), kind="party", dashed=True, thick=2.5)
    picture.text(408, 250, "checked at the party", "sm")
    picture.arrow((148, 84), (440, 84), kind="coordinator")
    picture.text(278, 74, "task's name, settings, model", "s")
    picture.arrow((440, 134), (148, 134), kind="model")
    picture.text(278, 124, "update, counts, losses", "s")
    picture.line((470, 178), (408, 178), kind="rows")
    picture.cross(408, 178)
    picture.text(278, 175, "rows, live objects,", "s", colour="secret")
    picture.text(278, 193, "pickles, code", "s", colour="secret")
    return picture


def evaluation() -> Picture:
    """The five roles of rows."""
    picture = Picture(
        280, "Five roles of rows",
        "Of all rows the coordinator holds out test rows and, if asked, validation rows. The others are dealt to "
        "parties, and each party splits its own into training, validation and test rows. Choices look at validation"
        " rows only; test rows are reported.")
    picture.text(20, 26, "all rows", "b", anchor="start")
    picture.bar(20, 36, 86, 34, "coordinator", solid=True)
    picture.bar(106, 36, 56, 34, "coordinator")
    picture.bar(162, 36, 418, 34, "plain")
    picture.text(371, 58, "dealt to parties by the partition", "s")
    for number, (name, width) in enumerate((("north", 380), ("south", 260), ("east", 160))):
        top, train = 92 + 40 * number, width * 0.7
        picture.text(150, top + 21, name, "s", anchor="end")
        picture.bar(162, top, train, 30, "party")
        picture.bar(162 + train, top, width * 0.14, 30, "rows")
        picture.bar(162 + train + width * 0.14, top, width * 0.16, 30, "rows", solid=True)
    picture.text(295, 112, "training rows", "s")
    for x, y, kind, solid, words in ((20, 222, "coordinator", True, "coordinator's test rows: test.*"),
                                     (20, 248, "coordinator", False, "its validation rows: judge updates"),
                                     (330, 222, "rows", True, "a party's test rows: parties.*"),
                                     (330, 248, "rows", False, "its validation rows: stop, adopt")):
        picture.bar(x, y, 16, 16, kind, solid=solid)
        picture.text(x + 22, y + 13, words, "s", anchor="start")
    return picture


def choosing() -> Picture:
    """From all parties to a choice, and what is learned from it."""
    picture = Picture(
        250, "How parties are chosen",
        "Of all parties the rules leave those that are eligible, the selector asks some about loss or time if it "
        "needs to, and chooses. What came of the round goes back to the selector as its memory.")
    for column, (name, count, kind) in enumerate((("all parties", 20, "plain"), ("eligible", 15, "plain"),
                                                  ("candidates", 9, "coordinator"), ("chosen", 4, "party"))):
        left = 24 + 142 * column
        picture.text(left + 52, 34, name, "sb")
        for number in range(20):
            x, y = left + 14 + 19 * (number % 5), 60 + 22 * (number // 5)
            if (number * 7) % 20 < count:
                picture.dot(x, y, 7, kind)
            else:
                picture.dot(x, y, 3, "plain", hollow=True)
    for column, words in enumerate(("rules", "asks", "takes")):
        left = 24 + 142 * column
        picture.arrow((left + 106, 92), (left + 142, 92))
        picture.text(left + 124, 160, words, "sm")
    picture.box(24, 184, 170, 50, "memory", "losses, values, times", kind="coordinator")
    picture.box(398, 184, 178, 50, "round", "train, answer, aggregate", kind="party")
    picture.arrow((502, 140), (502, 184), kind="party")
    picture.arrow((398, 209), (194, 209), kind="party")
    picture.text(296, 200, "observe: what came of it", "sm")
    return picture


def devices() -> Picture:
    """A round on the virtual clock."""
    picture = Picture(
        312, "A round on the virtual clock",
        "First the model is sent to all at the pace of the slowest link. Then all parties train at once. Uploads go"
        " one after another: party C is done early enough to hide its training behind the uploads of A and B. Party"
        " D finishes its upload after the deadline and is late.")
    start, deadline = 146, 470
    lanes = (("A", 64, 64, 60), ("B", 110, 124, 70), ("C", 160, 194, 80), ("D", 250, 274, 100))
    picture.bar(70, 46, start - 70, 176, "coordinator")
    picture.text(108, 34, "distribution", "sb", colour="coordinator")
    for number, (name, training, upload_from, upload) in enumerate(lanes):
        top = 54 + 42 * number
        picture.text(40, top + 22, name, "b")
        picture.bar(start, top, training, 32, "party")
        picture.bar(start + upload_from, top, upload, 32, "secret" if name == "D" else "rows", solid=True)
        if upload_from > training:
            picture.line((start + training, top + 16), (start + upload_from, top + 16), dashed=True)
    picture.text(start + 30, 34, "training, all at once", "sb", anchor="start", colour="party")
    picture.line((deadline, 40), (deadline, 232), kind="secret", dashed=True, thick=2.5)
    picture.text(deadline, 32, "deadline", "sb", colour="secret")
    picture.text(556, 202, "late", "sb", colour="secret")
    picture.arrow((70, 244), (580, 244))
    picture.text(580, 266, "virtual seconds", "sm", anchor="end")
    picture.bar(70, 284, 14, 14, "rows", solid=True)
    picture.text(90, 296, "uploads, one after another", "s", anchor="start")
    picture.line((320, 291), (352, 291), dashed=True)
    picture.text(360, 296, "done, waits for its turn", "s", anchor="start")
    return picture


def asynchronous() -> Picture:
    """Replies come when they come."""
    picture = Picture(
        204, "Training without waiting",
        "Three parties of different speed send updates whenever they are done. fedasync takes each one as it comes,"
        " fedbuff waits for a number of them, semisync takes all that came in a period.")
    for number, (name, ends) in enumerate((("A", (110, 190, 270, 350, 430)), ("B", (170, 310, 450)), ("C", (290,
                                                                                                            540)))):
        top, begin = 20 + 34 * number, 50
        picture.text(28, top + 18, name, "b")
        for end in ends:
            picture.bar(begin, top, end - begin - 4, 24, "party")
            picture.dot(end - 4, top + 12, 5, "rows")
            begin = end
    picture.arrow((50, 130), (580, 130))
    for x in (106, 166, 186, 266, 286, 306, 346, 426, 446, 536):
        picture.line((x, 124), (x, 136), kind="rows", thick=2.5)
    picture.text(50, 156, "fedasync: a new model at every mark", "s", anchor="start")
    picture.text(50, 174, "fedbuff: at every third, say", "s", anchor="start")
    picture.text(50, 192, "semisync: at fixed times, with what has come", "s", anchor="start")
    picture.text(580, 156, "the staler an update,", "sm", anchor="end")
    picture.text(580, 174, "the less it counts", "sm", anchor="end")
    return picture


PICTURES = {"what-crosses": what_crosses, "evaluation": evaluation, "choosing-parties": choosing,
            "devices-and-time": devices, "asynchronous": asynchronous}
