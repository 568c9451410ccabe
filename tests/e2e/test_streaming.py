"""Streams on Slurm and on SSH hosts: not yet. All falls back, says so, and gives the results of plain StreamFlow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.e2e.support import Site
from tests.template_support import Template

STREAMS = (
    ("individuals/carriers", "individuals_merge/parts"),
    ("individuals_merge/merged", "mutation_overlap/merged"),
    ("individuals_merge/merged", "frequency/merged"),
    ("sifting/sifted", "mutation_overlap/sifted"),
    ("sifting/sifted", "frequency/sifted"),
)


def test_the_1000genome_template(site: Site, tmp_path: Path) -> None:
    (tmp_path / "template").mkdir()
    template = Template.copy("1000genome", tmp_path / "template")
    scale = {"chromosomes": 22, "records": 120, "instances": 2, "populations": "EUR", "draws": 5}
    generated = template.script("generate.py", "tiny", *(f"--{name}={value}" for name, value in scale.items()))
    assert generated.returncode == 0, generated.stderr
    plain, _ = site.run_template(template, "streamflow.yml", "generated/tiny/job.yml")
    ours, log = site.run_template(template, "streamflow-io.yml", "generated/tiny/job.yml")
    assert len(plain) == 7
    assert ours == plain
    warnings = Counter(line.rpartition("WARNING")[2].strip() for line in log.splitlines() if "delivered at" in line)
    assert len(warnings) == len(STREAMS), log
    for producer, consumer in STREAMS:
        (told,) = (line for line in warnings if f"/{producer} -> " in line and f"/{consumer} " in line)
        assert "only local jobs stream yet" in told
        assert warnings[told] == 1
    assert site.leftovers() == []
