cwlVersion: v1.2
class: Workflow
doc: Assign the points of one fragment, then write its checkpoint.
inputs:
  scripts: Directory
  fragment: File
  centroids: File
steps:
  assign:
    run: tools/assign.cwl
    in: {scripts: scripts, fragment: fragment, centroids: centroids}
    out: [sums, labels]
  checkpoint:
    run: tools/checkpoint.cwl
    in: {scripts: scripts, fragment: fragment, labels: assign/labels}
    out: [checkpoint]
outputs:
  sums: {type: File, outputSource: assign/sums}
  checkpoint: {type: File, outputSource: checkpoint/checkpoint}
