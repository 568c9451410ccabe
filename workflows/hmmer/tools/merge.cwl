cwlVersion: v1.2
class: CommandLineTool
doc: The hits of all fragments in one table, by model, best hits first.
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/merge.py}
  - {position: 1, valueFrom: hits.tsv}
inputs:
  scripts: Directory
  tables: {type: "File[]", inputBinding: {position: 2}}
outputs:
  merged: {type: File, outputBinding: {glob: hits.tsv}}
