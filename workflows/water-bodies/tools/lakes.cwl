cwlVersion: v1.2
class: CommandLineTool
doc: Pixels and centre of each water body. Its pixels touch each other at a side.
baseCommand: [python3, -S, -E]
arguments: [{position: 0, valueFrom: $(inputs.scripts.path)/lakes.py}]
inputs:
  scripts: Directory
  mask: {type: File, streamable: true, inputBinding: {position: 1}}
  smallest: {type: int, inputBinding: {position: 2}}
stdout: lakes.tsv
outputs:
  table: {type: stdout, streamable: true}    # written front to back
