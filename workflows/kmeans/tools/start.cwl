cwlVersion: v1.2
class: CommandLineTool
doc: The first centroids (k-means++), and an empty history.
baseCommand: [python3, -E]
requirements:
  EnvVarRequirement: {envDef: {OPENBLAS_NUM_THREADS: "1", OMP_NUM_THREADS: "1"}}
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/start.py}
  - {position: 1, valueFrom: centroids.npy}
  - {position: 2, valueFrom: history.tsv}
inputs:
  scripts: Directory
  fragments: {type: "File[]", inputBinding: {position: 3}}
  clusters: {type: int, inputBinding: {position: 4, prefix: --clusters}}
  seed: {type: int, inputBinding: {position: 4, prefix: --seed}}
outputs:
  centroids: {type: File, outputBinding: {glob: centroids.npy}}
  history: {type: File, outputBinding: {glob: history.tsv}}
