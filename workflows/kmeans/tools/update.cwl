cwlVersion: v1.2
class: CommandLineTool
doc: The centroids moved to the means of their points; is another iteration needed?
baseCommand: [python3, -E]
requirements:
  EnvVarRequirement: {envDef: {OPENBLAS_NUM_THREADS: "1", OMP_NUM_THREADS: "1"}}
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/update.py}
inputs:
  scripts: Directory
  centroids: {type: File, inputBinding: {position: 1}}
  history: {type: File, inputBinding: {position: 2}}
  sums: {type: "File[]", inputBinding: {position: 3}}
  iterations: {type: int, inputBinding: {position: 4, prefix: --iterations}}
  tolerance: {type: float, inputBinding: {position: 4, prefix: --tolerance}}
outputs:          # the tool says in cwl.output.json what they are
  moved: File
  longer: File
  more: boolean
