"""The steps of StreamFlow between the fields of a record and what reads them, where fields come early."""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence
from typing import cast

from streamflow.core.utils import get_tag
from streamflow.core.workflow import Token
from streamflow.cwl.transformer import ValueFromTransformer
from streamflow.workflow.token import ObjectToken
from streamflow.workflow.transformer import ManyToOneTransformer

# What a transformer takes, and what it makes.
_Inputs = MutableMapping[str, Token]
_Outputs = MutableMapping[str, "Token | MutableSequence[Token]"]


class RecordTransformer(ManyToOneTransformer):  # type: ignore[misc]
    """Makes a record of its fields, each of which has a port of its own, when all of them are there."""

    async def transform(self, inputs: _Inputs) -> _Outputs:
        tag = get_tag(inputs.values())
        if all(token.value is None for token in inputs.values()):
            # The step was skipped: each field of one that runs is there.
            return {self.get_output_name(): Token(None, tag=tag, recoverable=True)}
        fields = {name: inputs[name].update(inputs[name].value) for name in self.input_ports}
        return {self.get_output_name(): ObjectToken(fields, tag=tag)}


class FieldTransformer(ValueFromTransformer):  # type: ignore[misc]
    """A `valueFrom` that takes a field of a record, where that field comes instead of the record."""

    async def transform(self, inputs: _Inputs) -> _Outputs:
        (field,) = inputs.values()
        if field.value is None:
            # The step was skipped, and so there is no record.
            return cast(_Outputs, await super().transform(inputs))
        return {self.get_output_name(): field.update(field.value)}
