import pytest

from raising import raises_about
from torchcaps.errors import ConfigError, UnknownNameError
from torchcaps.ops.em.schedules import inverse_temps, sharpnesses


def test_named_schedules_rise():
    assert inverse_temps("linear", 3) == (1.0, 2.0, 3.0)
    assert inverse_temps("released", 2) == pytest.approx((0.001, 0.00195))
    assert inverse_temps("paper", 2) == pytest.approx((0.05, 0.0975))


def test_schedule_from_number_sequence_function():
    assert inverse_temps(2, 2) == (2.0, 2.0)
    assert inverse_temps([1, 5], 2) == (1.0, 5.0)
    assert inverse_temps(lambda iteration: 0.5 * iteration, 3) == (0.0, 0.5, 1.0)


def test_sharpness_per_iteration():
    assert sharpnesses(0.25, 2) == (0.25, 0.25)
    assert sharpnesses((1, 2, 0), 3) == (1.0, 2.0, 0.0)
    assert sharpnesses(lambda iteration: 0.25 * (iteration + 1), 2) == (0.25, 0.5)
    with raises_about(ConfigError, "sharpness", 2000.0):
        sharpnesses(2000.0, 1)
    with raises_about(ConfigError, "sharpness", "'paper'"):
        sharpnesses("paper", 1)  # pyright: ignore[reportArgumentType]


def test_errors_name_the_argument():
    with raises_about(ConfigError, "iters", "0"):
        inverse_temps("paper", 0)
    with raises_about(ConfigError, "inverse_temp", "2"):
        inverse_temps([1.0, 2.0], 3)
    with raises_about(ConfigError, "inverse_temp", "finite values of at least 0, got"):
        inverse_temps(-1.0, 1)
    with raises_about(ConfigError, "inverse_temp", "None"):
        inverse_temps(None, 1)  # pyright: ignore[reportArgumentType]
    with raises_about(UnknownNameError, "'papers'", "'paper'"):
        inverse_temps("papers", 1)
