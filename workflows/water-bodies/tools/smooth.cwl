cwlVersion: v1.2
class: CommandLineTool
doc: The mean of the nine pixels around each pixel.
baseCommand: [python3, -S, -E]
arguments: [{position: 0, valueFrom: $(inputs.scripts.path)/smooth.py}]
inputs:
  scripts: Directory
  index: {type: File, streamable: true, inputBinding: {position: 1}}
stdout: smoothed.pgm
outputs:
  smoothed: {type: stdout, streamable: true}    # written front to back
