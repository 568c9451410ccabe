cwlVersion: v1.2
class: CommandLineTool
doc: Which samples carry the minor allele of each SNP in one range of lines of a chromosome's VCF.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  # The rows are written in order, never again touched: readable as they come, complete when the file is closed.
  - class: sfio:Streaming
    rules:
      - {port: carriers, committed: on_close, mode: no_update}
  # All ranges are of one file: it is read once, in large requests, ahead of the jobs.
  - class: sfio:ReadSession
    rules:
      - {of: vcf, part: range, records: vcf}
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/individuals.py}
  - {position: 3, valueFrom: $(inputs.chromosome).$(inputs.range).tsv}
inputs:
  scripts: Directory
  chromosome: string
  vcf: {type: File, inputBinding: {position: 1}}
  range: {type: string, inputBinding: {position: 2}, doc: "KofN, for example 2of4"}
  frequency_field: {type: "string?", inputBinding: {position: 4, prefix: --field}}
outputs:
  carriers:
    type: File
    streamable: true
    outputBinding: {glob: $(inputs.chromosome).$(inputs.range).tsv}
