"""The secret key over whole numbers: opens ciphertexts and takes packed numbers apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tequio.privacy.encryption.fixed_point import room, to_bytes, to_values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tequio.federation.payload import Payload
    from tequio.privacy.encryption.exact import ExactKey
    from tequio.privacy.encryption.scheme import Encrypted


class Secret(Protocol):
    """What opens one ciphertext."""

    def open(self, ciphertext: Any) -> int:
        """The plaintext, as a signed number."""
        ...

    def to_payload(self) -> Payload:
        """As it is kept."""
        ...


@dataclass(frozen=True)
class ExactSecret:
    """Opens what was encrypted with its public part."""

    public: ExactKey
    secret: Secret

    def to_payload(self) -> Payload:
        """The whole key, for the private state of its holder only."""
        return self.secret.to_payload()

    def open(self, given: Encrypted) -> Payload:
        """The numbers as they are, exact, for `reveal`."""
        numbers = to_bytes(self._numbers(given), room(given.bits), signed=True)
        return {"numbers": numbers, "fraction": given.fraction}

    def decrypt(self, given: Encrypted) -> NDArray[np.float64]:
        """The values, one row of `columns` each; flat where there is one column."""
        values = to_values(self._numbers(given), given.fraction)
        return values.reshape(-1, given.columns) if given.columns > 1 else values

    def _numbers(self, given: Encrypted) -> list[int]:
        return self.public.numbers(given, [self.secret.open(row) for row in given.content])
