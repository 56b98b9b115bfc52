"""What the messages of vertical trees tell whoever sees them."""

from __future__ import annotations

from tequio.algorithms.vertical.meaning import tells
from tequio.algorithms.vertical.trees import labels, offering, predicting, secureboost, vertical_forest

_HIDDEN = "each row's gradient and second derivative, or class: encrypted (in clear with encryption 'plain')"
_SUMS = "what the rows left of each possible split add up to, for the label holder only: encrypted, in secret order"
_ASKED = "nodes of the growing trees whose splits are to be offered"
_SPLITS = "which way rows went at the nodes that were split last: it groups rows whose labels are alike"
_NODES = {"trees": "in which tree a node was split", "nodes": "which node was split"}
_RECORDS = "numbers of splits; what they look at, only their owner knows"
_GROWN = "the shape of the trees and whose each split is"
_TREES = "how many trees there are"

tells(offering.offer, hidden=_HIDDEN, block_of="how values are packed", weights="how often a row counts in each tree",
      asked=_ASKED, splits=_SPLITS, sizes="how many splits the party offers: its columns times their bins",
      blocks=_SUMS)
tells(offering.divide, **_NODES, offers="which of the party's own offers were taken", records=_RECORDS,
      ways="which rows of a node go left")
tells(offering.route, records=_RECORDS, reach="which rows reach the receiver's splits",
      ways="which of these rows go left")
tells(labels.choose, asked=_ASKED, splits=_SPLITS, offers=_SUMS, **_NODES, left="numbers of the new nodes",
      owner="whose split was the best", own="which rows go left at splits of the label holder")
tells(predicting.count_asked, rows="how many rows are meant")
tells(secureboost.derive, trees=_TREES, hidden=_HIDDEN, block_of="how values are packed")
tells(secureboost.add_trees, grown=_GROWN, splits=_SPLITS, loss="mean loss of the training rows")
tells(secureboost.add_up, leaves="in which leaf each row ends; what leaves say, only the label holder knows")
tells(vertical_forest.hide_classes, trees=_TREES, weights="how often a row counts in each tree", hidden=_HIDDEN,
      block_of="how values are packed")
tells(vertical_forest.add_trees, grown=_GROWN, splits=_SPLITS)
tells(vertical_forest.count_votes, leaves="in which leaf each row ends; what leaves say, only the label holder knows")
