cwlVersion: v1.2
class: CommandLineTool
doc: A sequence database in fragments of about the same size.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  # No fragment is written: split.py says where it would cut, and the searches read the database itself.
  - class: sfio:ReadSession
    rules: [{port: fragments, of: database}]
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/split.py}
inputs:
  scripts: Directory
  database: {type: File, inputBinding: {position: 1}}
  count: {type: int, inputBinding: {position: 2}}
outputs:          # the tool says in cwl.output.json what they are
  fragments: File[]
  targets: int
