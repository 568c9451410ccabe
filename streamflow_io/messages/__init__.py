"""Messages that have more to say than a line, by their codes. Pure."""

from .codes import Code, coded
from .explanations import EXPLANATIONS, Case, Explanation

__all__ = ["EXPLANATIONS", "Case", "Code", "Explanation", "coded"]
