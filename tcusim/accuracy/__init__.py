"""How precise sums are on a matrix unit: measured on the simulator, and predicted by a model."""

from tcusim.accuracy.accuracy import Accuracy, Error, accuracy_of
from tcusim.accuracy.families import FAMILIES, Family
from tcusim.accuracy.limits import Bias, Fall, Order, Stagnation
from tcusim.accuracy.measure import BLOCK, measured_errors
from tcusim.accuracy.prediction import predicted_error
from tcusim.accuracy.splitting import Splitting

__all__ = [
    "BLOCK",
    "FAMILIES",
    "Accuracy",
    "Bias",
    "Error",
    "Fall",
    "Family",
    "Order",
    "Splitting",
    "Stagnation",
    "accuracy_of",
    "measured_errors",
    "predicted_error",
]
