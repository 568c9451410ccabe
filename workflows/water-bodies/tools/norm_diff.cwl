cwlVersion: v1.2
class: CommandLineTool
doc: The normalized difference of two bands of the same size, from -1 (as 0) to 1 (as 65535).
baseCommand: [python3, -S, -E]
arguments: [{position: 0, valueFrom: $(inputs.scripts.path)/norm_diff.py}]
inputs:
  scripts: Directory
  bands: {type: "File[]", streamable: true, inputBinding: {position: 1}}    # each is read once, row by row
stdout: index.pgm
outputs:
  index: {type: stdout, streamable: true}    # written front to back
