cwlVersion: v1.2
class: CommandLineTool
doc: The nearest centroid of each point of a fragment.
baseCommand: [python3, -E]
requirements:
  ResourceRequirement: {coresMin: 1, ramMin: 128}
  EnvVarRequirement: {envDef: {OPENBLAS_NUM_THREADS: "1", OMP_NUM_THREADS: "1"}}    # no more threads than cores asked for
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/assign.py}
  - {position: 3, valueFrom: $(inputs.fragment.nameroot).sums.npy}
  - {position: 4, valueFrom: $(inputs.fragment.nameroot).labels.npy}
inputs:
  scripts: Directory
  fragment: {type: File, inputBinding: {position: 1}}
  centroids: {type: File, inputBinding: {position: 2}}
outputs:
  sums: {type: File, outputBinding: {glob: $(inputs.fragment.nameroot).sums.npy}}
  labels: {type: File, outputBinding: {glob: $(inputs.fragment.nameroot).labels.npy}}
