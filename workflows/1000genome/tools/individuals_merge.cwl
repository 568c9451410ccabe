cwlVersion: v1.2
class: CommandLineTool
doc: One compressed file of a chromosome's variants and carriers from those of its ranges.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  - class: sfio:Streaming
    rules:
      - {port: merged, committed: on_close, mode: no_update}
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/individuals_merge.py}
  - {position: 1, valueFrom: $(inputs.chromosome).carriers.tsv.gz}
inputs:
  scripts: Directory
  chromosome: string
  parts:
    doc: In the order of their ranges; each is read once, front to back, one after the other.
    type: File[]
    streamable: true
    inputBinding: {position: 2}
outputs:
  merged:
    type: File
    streamable: true
    outputBinding: {glob: $(inputs.chromosome).carriers.tsv.gz}
