cwlVersion: v1.2
class: CommandLineTool
doc: A checkpoint of a fragment, its sequences and its hits; on the disk when the job ends.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  # Only moves data: takes no core, runs beside the searches.
  - class: sfio:IOTask
  # As many at once as is best for the storage: learned while the workflow runs, remembered for the next run.
  - class: sfio:StorageBandwidth
    storageBW: auto
    storage: checkpoints
    direction: write
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/checkpoint.py}
  - {position: 1, valueFrom: $(inputs.fragment.nameroot).tar}
  - {position: 4, prefix: --multiple, valueFrom: "1048576"}    # makes all checkpoints the same size
inputs:
  scripts: Directory
  fragment: {type: File, inputBinding: {position: 2}}
  hits: {type: File, inputBinding: {position: 3}}
outputs:
  checkpoint:
    type: File
    outputBinding: {glob: $(inputs.fragment.nameroot).tar}
