cwlVersion: v1.2
class: CommandLineTool
doc: |
  A file in parts of whole records. With StreamFlow-IO no part is written: partition.py says where it would cut.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  - class: sfio:ReadSession
    rules: [{port: parts, of: whole}]
baseCommand: [python3, -S, -E]
inputs:
  script: {type: File, default: {class: File, location: partition.py}, inputBinding: {position: 0}}
  whole: {type: File, inputBinding: {position: 1}}
  records: {type: string, inputBinding: {position: 2, prefix: --records}, doc: "bytes, lines, csv, fasta, fastq, sam or vcf; also if bgzip has compressed it"}
  count: {type: "int?", inputBinding: {position: 2, prefix: --parts}, doc: So many parts of equal bytes}
  every: {type: "int?", inputBinding: {position: 2, prefix: --every}, doc: So many records in each}
  chunk: {type: "int?", inputBinding: {position: 2, prefix: --chunk}, doc: At most so many MiB in each}
  names: {type: string, inputBinding: {position: 2, prefix: --names}, doc: "The name of a part, with one %d, as in chunk-%04d.fq"}
outputs:          # the tool says in cwl.output.json what they are
  parts: File[]
