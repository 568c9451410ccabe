cwlVersion: v1.2
class: Workflow
label: Water bodies in a satellite image
doc: |
  Water is brighter in green than in near infrared light. The difference of both bands, smoothed and cut at Otsu's threshold,
  gives a mask of water, and the mask a table of lakes.
requirements:
  ScatterFeatureRequirement: {}
inputs:
  scripts:
    type: Directory
    default: {class: Directory, location: scripts}
    doc: The Python tools
  bands: {type: "File[]", doc: "green, then near infrared: PGM (P5) with 16 bits, of the same size"}
  area: {type: "int[]", doc: "the area of interest in pixels: left, top, width, height"}
  smallest: {type: int, default: 20, doc: "pixels that a water body has at least"}
steps:
  crop:
    run: tools/crop.cwl
    scatter: band
    in: {scripts: scripts, band: bands, area: area}
    out: [cropped]
  norm_diff:
    run: tools/norm_diff.cwl
    in: {scripts: scripts, bands: crop/cropped}
    out: [index]
  smooth:
    run: tools/smooth.cwl
    in: {scripts: scripts, index: norm_diff/index}
    out: [smoothed]
  otsu:
    run: tools/otsu.cwl
    in: {scripts: scripts, index: smooth/smoothed}
    out: [mask]
  lakes:
    run: tools/lakes.cwl
    in: {scripts: scripts, mask: otsu/mask, smallest: smallest}
    out: [table]
outputs:
  mask: {type: File, outputSource: otsu/mask}
  table: {type: File, outputSource: lakes/table}
