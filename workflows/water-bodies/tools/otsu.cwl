cwlVersion: v1.2
class: CommandLineTool
doc: A mask of the pixels above the threshold that separates two groups best (Otsu 1979).
baseCommand: [python3, -S, -E]
arguments: [{position: 0, valueFrom: $(inputs.scripts.path)/otsu.py}]
inputs:
  scripts: Directory
  index: {type: File, streamable: true, inputBinding: {position: 1}}
stdout: water.pgm
outputs:
  mask: {type: stdout, streamable: true}    # written front to back
