"""What the messages of vertical trees tell: the shape of trees and who splits where, not what is looked at."""

from __future__ import annotations

from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.trees import labels, offering, predicting, secureboost, vertical_forest

_NODES = "which nodes of which trees are meant"
_WAYS = "which way rows go at a split: which rows are in which node"
_HIDDEN = "derivatives or classes row by row, encrypted: nothing without the label holder's key"
_OFFERS = "sums of encrypted values left of each possible split, in secret order"
_SHAPE = "which party splits at which node, and the shape of the trees"
_OWN = "by what number the splitting party remembers its split"
_LEAVES = "at which leaf of each tree a row ends"
_WEIGHTS = "how often each row was drawn for each tree"

tells(secureboost.derive, trees="how many trees there are", hidden=_HIDDEN, block_of="how the values are packed")
tells(vertical_forest.hide_classes, trees="how many trees there are", weights=_WEIGHTS, hidden=_HIDDEN,
      block_of="how the values are packed")
tells(offering.offer, asked=_NODES, hidden=_HIDDEN, block_of="how the values are packed", splits=_WAYS,
      weights=_WEIGHTS, blocks=_OFFERS, sizes="how many splits each node is offered")
tells(labels.choose, asked=_NODES, offers=_OFFERS + "; or which offer is taken", splits=_WAYS, trees=_NODES,
      nodes=_NODES, owner="which party splits", left="at which node the left side goes on", own=_OWN + "; " + _WAYS)
tells(offering.divide, trees=_NODES, nodes=_NODES, offers="which of the own offers are taken", records=_OWN, ways=_WAYS)
tells(secureboost.add_trees, grown=_SHAPE, splits=_WAYS, loss="mean loss of the training rows")
tells(vertical_forest.add_trees, grown=_SHAPE, splits=_WAYS)
tells(predicting.count_asked, rows="how many rows are asked about")
tells(offering.route, records=_OWN, reach="which rows reach the own splits", ways=_WAYS)
tells(secureboost.add_up, leaves=_LEAVES)
tells(vertical_forest.count_votes, leaves=_LEAVES)
