cwlVersion: v1.2
class: CommandLineTool
label: Write a checkpoint of what a stage has made
$namespaces: {sfio: "urn:streamflow-io:cwl#"}
hints:
  - {class: DockerRequirement, dockerPull: "python:3.11-slim"}
  # Only moves data: takes no core, runs beside the stages.
  - class: sfio:IOTask
  # As many at once as is best for the storage: learned for each of the five steps, remembered for the next run.
  - class: sfio:StorageBandwidth
    storageBW: auto
    storage: checkpoints
    direction: write
baseCommand: [python3, -S, -E]
arguments:
  - {position: 0, valueFrom: $(inputs.scripts.path)/checkpoint.py}
  - {position: 1, valueFrom: $(inputs.sample).$(inputs.stage).tar}
inputs:
  scripts: Directory
  sample: string
  stage: string
  # Not streamable, although it could be: an I/O task that follows a stage at work would hold its bandwidth and write little.
  state: {type: [File, "File[]"], inputBinding: {position: 2}}
outputs:
  checkpoint:
    type: File
    outputBinding: {glob: $(inputs.sample).$(inputs.stage).tar}
