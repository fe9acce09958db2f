import pytest

from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.ops.em.schedules import inverse_temps


def test_named_schedules_rise():
    assert inverse_temps("linear", 3) == (1.0, 2.0, 3.0)
    assert inverse_temps("released", 2) == pytest.approx((0.0005, 0.000975))
    assert inverse_temps("paper", 2) == pytest.approx((0.05, 0.0975))


def test_a_number_a_sequence_and_a_function_are_taken_as_they_are():
    assert inverse_temps(2, 2) == (2.0, 2.0)
    assert inverse_temps([1, 5], 2) == (1.0, 5.0)
    assert inverse_temps(lambda iteration: 0.5 * iteration, 3) == (0.0, 0.5, 1.0)


def test_errors_name_the_argument():
    with pytest.raises(ConfigError, match="iters: expected a count of at least 1, got 0"):
        inverse_temps("paper", 0)
    with pytest.raises(ConfigError, match="inverse_temp: expected 3 values, one per iteration, got 2"):
        inverse_temps([1.0, 2.0], 3)
    with pytest.raises(ConfigError, match="inverse_temp: expected finite values of at least 0, got"):
        inverse_temps(-1.0, 1)
    with pytest.raises(
        ConfigError, match="inverse_temp: expected the name of a schedule, numbers or a function, got None"
    ):
        inverse_temps(None, 1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UnknownNameError, match="unknown inverse_temp 'papers'; did you mean 'paper'"):
        inverse_temps("papers", 1)
