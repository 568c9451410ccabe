cwlVersion: v1.2
class: CommandLineTool
doc: The variants that have a SIFT score in the annotated VCF of a chromosome.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  - class: sfio:Streaming
    rules:
      - {port: sifted, committed: on_close, mode: no_update}
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/sifting.py}
  - {position: 2, valueFrom: $(inputs.chromosome).sifted.tsv}
inputs:
  scripts: Directory
  chromosome: string
  annotation: {type: File, streamable: true, inputBinding: {position: 1}}
outputs:
  sifted:
    type: File
    streamable: true
    outputBinding: {glob: $(inputs.chromosome).sifted.tsv}
