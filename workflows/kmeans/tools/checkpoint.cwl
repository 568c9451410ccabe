cwlVersion: v1.2
class: CommandLineTool
doc: A checkpoint of a fragment, its points and their labels; on the disk when the job ends.
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  # Only moves data: takes no core, runs beside the next iterations.
  - class: sfio:IOTask
  # As many at once as is best for the storage: tried with 2, 4, 8, ... 64 MB/s for each, remembered for the next run.
  - class: sfio:StorageBandwidth
    storageBW: auto(2,64,2)
    storage: checkpoints
    direction: write
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/checkpoint.py}
  - {position: 1, valueFrom: $(inputs.fragment.nameroot).tar}
inputs:
  scripts: Directory
  fragment: {type: File, inputBinding: {position: 2}}
  labels: {type: File, inputBinding: {position: 3}}
outputs:
  checkpoint:
    type: File
    outputBinding: {glob: $(inputs.fragment.nameroot).tar}
