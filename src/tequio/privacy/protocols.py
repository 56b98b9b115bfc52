"""Tasks that stages need besides the algorithm's own.

They carry no update of themselves: what a party releases in them it has held since a task whose reply passed all stages
of the run, or is a key, a share or a proof.
"""

PROTOCOL_TASKS = frozenset({
    "secure-sum.keys", "secure-sum.shares", "secure-sum.masked", "secure-sum.unmask",
    "encrypted-sum.hello", "encrypted-sum.hand", "encrypted-sum.take", "encrypted-sum.encrypt", "encrypted-sum.decrypt",
    "verified.prove", "verified.check", "attested.challenge", "attested.check",
    "group-sum.hand-over",
})
