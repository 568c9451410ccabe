cwlVersion: v1.2
class: CommandLineTool
doc: One directory of a chromosome, with a compressed file per sample, from those of its ranges.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  - class: sfio:Streaming
    rules:
      - {port: merged, committed: on_close, start: producer}
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/individuals_merge_directory.py}
  - {position: 1, valueFrom: $(inputs.chromosome).merged}
inputs:
  scripts: Directory
  chromosome: string
  parts:
    doc: In the order of their ranges; their files are opened by name, in the order in which they are written.
    type: Directory[]
    inputBinding: {position: 2}
outputs:
  merged:
    type: Directory
    outputBinding: {glob: $(inputs.chromosome).merged}
