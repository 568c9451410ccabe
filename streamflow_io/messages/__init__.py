"""Messages with codes, and their explanations."""

from .codes import Code, coded, is_about
from .explanations import EXPLANATIONS, Case, Explanation

__all__ = ["EXPLANATIONS", "Case", "Code", "Explanation", "coded", "is_about"]
