"""What each party added to a round: scores of its update, for selection, incentives and reports."""
