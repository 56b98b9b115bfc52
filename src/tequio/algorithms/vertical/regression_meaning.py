"""What the messages of encrypted regression tell: ciphertexts nothing, opened values only whose pad is one's own."""

from __future__ import annotations

from tequio.algorithms.vertical import regression_scores as scores
from tequio.algorithms.vertical import regression_tasks as tasks
from tequio.algorithms.vertical.meaning import tells

_KEY = "the public key"
_RESIDUAL = "residuals of the batch, encrypted: nothing without the private key"
_HIDDEN = "values encrypted and under a pad of the party that they are for: nothing"
_OPENED = "decrypted values under the receiver's own pad: its part of a gradient, or scores at the label holder"
_PADDED = "decrypted values under pads of the parties that they are for: nothing but their number"
_LOSS = "a sum of losses, encrypted"
_MASK = "which rows of the batch are common, encrypted: nothing without the private key"

tells(tasks.make_key, key=_KEY)
tells(tasks.take_key, key=_KEY)
tells(tasks.residual, mask=_MASK, opened=_OPENED, rows="how many rows the batch has", residual=_RESIDUAL,
      weights="a fingerprint of the own weights")
tells(tasks.gradient, residual=_RESIDUAL, gradient=_HIDDEN)
tells(tasks.open_hidden, hidden=_HIDDEN, opened=_PADDED)
tells(scores.loss_part, mask=_MASK, residual=_RESIDUAL, loss=_LOSS)
tells(scores.hide_loss, mask=_MASK, loss=_LOSS, hidden=_HIDDEN)
tells(scores.loss, mask=_MASK, opened=_OPENED, loss="the mean loss over rows, in clear")
tells(scores.part_of_scores, scores="a party's part of the scores, encrypted")
tells(scores.hide_scores, scores="scores, encrypted", hidden=_HIDDEN)
tells(scores.is_calibrated, calibrated="whether the calibration is up to date")
tells(scores.calibrate, opened=_OPENED)
tells(scores.keep_scores, opened=_OPENED)
tells(scores.recentre, opened=_OPENED)
tells(scores.exact_loss, opened=_OPENED, loss="the mean loss over rows, in clear")
tells(tasks.centred_residual, scores="scores, encrypted", residual=_RESIDUAL)
