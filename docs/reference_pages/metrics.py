"""The page on metrics."""

from __future__ import annotations

from reference_pages.markup import page, table, text
from tequio.learners.metrics import METRICS


def metrics_page() -> str:
    """Every metric."""
    rows = [[f"`{name}`", text(metric.meaning), "higher" if metric.higher_is_better else "lower",
             ", ".join(metric.kinds)] for name, metric in METRICS.items()]
    return page("Metrics", "Parties send additive counts, never predictions; metrics follow from the sum. In a run's "
                 "tables a metric's name has a prefix: `test.` on the coordinator's test rows, `validation.` on the "
                 "parties' pooled validation rows, `parties.NAME.` how the parties' own test rows differ (`pooled`, "
                 "`mean`, `sd`, `min`, `max`, `worst_decile`), `train.` as reported while training. "
                 "`privacy.epsilon` is what a private run has spent by then.",
                 table(["metric", "meaning", "better", "kinds of target"], rows))
