"""What others may read of an error that a party raised: by construction no value of a row."""

import pytest

from tequio import errors
from tequio.errors import SEE_ITS_LOG, ConfigError, DataError, EngineError, MissingExtra, PermissionDenied, crossing

SECRET = "Agnes Miller"


def test_only_errors_built_from_what_others_know_may_cross():
    crosses = {name for name, found in vars(errors).items()
               if isinstance(found, type) and issubclass(found, errors.TequioError) and found.may_cross}
    assert crosses == {"ConfigError", "PermissionDenied", "MissingExtra"}


@pytest.mark.parametrize("cause", [ConfigError("there is no learner 'x'", remedy="did you mean 'y'?"),
                                   PermissionDenied("the party's policy refuses", remedy="the party's owner decides"),
                                   MissingExtra("torch", "torch", "the learner 'mlp'")])
def test_they_cross_with_their_remedy(cause):
    assert crossing(cause) == (cause.message, cause.remedy)


@pytest.mark.parametrize(("cause", "says"), [
    (DataError(f"column 'name' has the category '{SECRET}'", remedy=f"drop {SECRET}", column="name"),
     "data error in column 'name'"),
    (DataError("odd", column=SECRET), "data error"),  # not a column that was agreed on
    (EngineError(f"{SECRET} is odd"), "engine error"),
    (ValueError(f"could not convert string to float: '{SECRET}'"), "ValueError"),
])
def test_of_all_others_the_kind_and_the_agreed_column_cross(cause, says):
    assert crossing(cause, ["name"]) == (says, SEE_ITS_LOG)


def test_what_quotes_another_error_does_not_cross():
    try:
        try:
            float(SECRET)
        except ValueError as cause:
            raise ConfigError(f"this cannot be used: {cause}") from cause
    except ConfigError as quoting:
        assert crossing(quoting) == ("config error", SEE_ITS_LOG)
