"""Messages with codes. `explanations` has the explanation of each code, which a run does not need."""

from .codes import Code, coded, is_about

__all__ = ["Code", "coded", "is_about"]
