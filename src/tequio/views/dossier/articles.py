"""Which section speaks to which article: of the EU AI Act, of the GDPR, and to which item of TRIPOD+AI.

    Regulation (EU) 2024/1689; Regulation (EU) 2016/679; Collins et al.: TRIPOD+AI statement, BMJ 2024
"""

from __future__ import annotations

NOTICE = ("This is evidence, not compliance. It says what files show, by their hashes. Whether that meets a law or a "
          "guideline is for the persons who decide to judge, with much that no file shows.")

_ACT, _GDPR, _TRIPOD = "EU AI Act", "GDPR", "TRIPOD+AI"

ARTICLES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (_ACT, "Art. 9", "risk management", ("probes", "robustness", "fairness")),
    (_ACT, "Art. 10", "data and data governance", ("data", "provenance", "fairness")),
    (_ACT, "Art. 11 and Annex IV", "technical documentation", ("model", "method", "performance", "environment")),
    (_ACT, "Art. 12", "record-keeping", ("signatures", "files", "provenance")),
    (_ACT, "Art. 13", "information for deployers", ("model", "performance")),
    (_ACT, "Art. 14", "human oversight", ("model",)),
    (_ACT, "Art. 15", "accuracy, robustness and cybersecurity", ("performance", "robustness", "probes", "signatures")),
    (_ACT, "Art. 18", "keeping of documentation", ("files",)),
    (_GDPR, "Art. 5(1)(c)", "data minimisation", ("crossing", "data")),
    (_GDPR, "Art. 5(2)", "accountability", ("provenance", "signatures", "files")),
    (_GDPR, "Art. 6 and 9", "lawfulness, special categories", ("data",)),
    (_GDPR, "Art. 17", "erasure", ("forgetting",)),
    (_GDPR, "Art. 22", "automated decisions", ("model",)),
    (_GDPR, "Art. 25", "data protection by design", ("crossing", "privacy")),
    (_GDPR, "Art. 30", "records of processing", ("data", "crossing")),
    (_GDPR, "Art. 32", "security of processing", ("crossing", "signatures", "probes")),
    (_GDPR, "Art. 35", "impact assessment", ("privacy", "probes", "crossing")),
    (_TRIPOD, "5a, 5b", "sources and dates of the data", ("data",)),
    (_TRIPOD, "6a, 6b", "setting and eligibility of participants", ("data",)),
    (_TRIPOD, "7", "preparation of the data", ("data", "method")),
    (_TRIPOD, "8a", "outcome", ("model",)),
    (_TRIPOD, "9a to 9c", "predictors", ("data",)),
    (_TRIPOD, "10", "sample size", ("data", "performance")),
    (_TRIPOD, "11", "missing data", ("data",)),
    (_TRIPOD, "12a to 12g", "analytical methods", ("method", "performance")),
    (_TRIPOD, "14", "fairness in methods", ("fairness",)),
    (_TRIPOD, "15", "output of the model", ("model",)),
    (_TRIPOD, "16", "training beside evaluation", ("data", "performance")),
    (_TRIPOD, "17", "ethical approval", ("data",)),
    (_TRIPOD, "18e, 18f", "sharing of data and code", ("data", "environment", "files")),
    (_TRIPOD, "20a to 20c", "participants", ("data",)),
    (_TRIPOD, "21, 22", "development and specification of the model", ("model", "method", "provenance")),
    (_TRIPOD, "23a", "performance with intervals", ("performance",)),
    (_TRIPOD, "23b", "differences between clusters", ("performance", "fairness")),
    (_TRIPOD, "24", "updates of the model", ("forgetting", "provenance")),
    (_TRIPOD, "26", "limitations", ("model",)))
