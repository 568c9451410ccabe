"""Streams on Slurm and on SSH hosts: not yet. All falls back, says so, and gives the results of plain StreamFlow."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cwl import found, streaming, tool, workflow
from tests.e2e.support import Site
from tests.template_support import Template

STREAMS = (
    ("individuals/carriers", "individuals_merge/parts"),
    ("individuals_merge/merged", "mutation_overlap/merged"),
    ("individuals_merge/merged", "frequency/merged"),
    ("sifting/sifted", "mutation_overlap/sifted"),
    ("sifting/sifted", "frequency/sifted"),
)


def test_the_1000genome_template(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    template = Template.copy("1000genome", tmp_path_factory.mktemp("template"))
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


def test_a_host_gets_a_local_file_at_its_commit(hosts: Site) -> None:
    """While the producer still runs, because its other output is not complete."""
    producer = tool(
        'echo early > early.txt; i=0; until [ -e "$TRACE.read" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
        "note end; echo late > late.txt",
        {},
        {"early": found("early.txt"), "late": found("late.txt")},
        [streaming({"port": "early", "committed": "on_close"})],
    )
    consumer = tool(
        'note read; touch "$TRACE.read"; cat $file > copy.txt; hostname >> copy.txt',
        {"file": "File"},
        {"out": found("copy.txt")},
    )
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/early"}}}
    document = workflow({}, steps, {"late": "a/late", "copy": "b/out"})
    hosts.steps = ("/b",)
    ours = hosts.run(document)
    assert ours.ok, ours.errors
    assert ours.time("read") < ours.time("end")
    copied = ours.files["copy.txt"].decode().split()
    assert copied[0] == "early"
    assert copied[1] in ("host1", "host2")
    assert hosts.leftovers() == []
