"""How precise sums are on a matrix unit: measured on the simulator, and predicted by a model."""

from tcusim.judge.accuracy.families import FAMILIES, Family
from tcusim.judge.accuracy.limits import Bias, Fall, Order, Stagnation
from tcusim.judge.accuracy.measure import BLOCK, measured_errors
from tcusim.judge.accuracy.prediction import predicted_error
from tcusim.judge.accuracy.splitting import Splitting
from tcusim.judge.accuracy.summary import Accuracy, Error, accuracy_of

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
