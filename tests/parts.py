"""Parts of an algorithm for tests: what is given, by the name of its field."""


def Parts(learner=None, local=None, selector=None, aggregator=None, stages=None, contribution=None, attack=None):
    given = {"learner": learner, "local": local, "selector": selector, "aggregator": aggregator, "stages": stages,
             "contribution": contribution, "attack": attack}
    return {name: value for name, value in given.items() if value is not None}
