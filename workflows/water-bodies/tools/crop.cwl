cwlVersion: v1.2
class: CommandLineTool
doc: The area of interest of a band.
baseCommand: [python3, -S, -E]
arguments: [{position: 0, valueFrom: $(inputs.scripts.path)/crop.py}]
inputs:
  scripts: Directory
  band: {type: File, streamable: true, inputBinding: {position: 1}}
  area: {type: "int[]", inputBinding: {position: 2}}
stdout: $(inputs.band.basename)
outputs:
  cropped: {type: stdout, streamable: true}    # written front to back
