"""Input of any size for this workflow: a VCF and an annotated VCF per chromosome, and the job file.

    python3 generate.py small|demo|real             as the table PRESETS says
    python3 generate.py NAME --records 100000 ...   any other name: the preset `demo` with your changes

Real: the sites, identifiers, alleles and frequencies of data/ (10,376 variants of chromosome 22; 169 over all
autosomes) and the genotypes of the samples that data/ has for them. Generated, and marked so in the INFO of
each record: all other genotypes (independent draws from the frequency of the sample's super-population, in
Hardy-Weinberg proportion), the sites beyond the real ones, and every SIFT score, gene and transcript of the
annotation. Not for biology. The same arguments always write the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import random
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from synthesis import (
    DATA,
    SITES,
    SUPER_POPULATIONS,
    Genotypes,
    annotation_header,
    annotation_record,
    genotype_header,
    genotype_record,
    read_sites,
    sample_names,
    sites_of,
)

HERE = Path(__file__).resolve().parent
POPULATIONS = ("ALL", "GBR", *SUPER_POPULATIONS)
MAX_RECORDS = 500_000


@dataclass(frozen=True)
class Scale:
    """How much input to write."""

    chromosomes: tuple[str, ...] = ("22",)
    records: int = 50_000
    samples: int = 2_504
    instances: int = 2
    populations: tuple[str, ...] = ("EUR",)
    draws: int = 1_000
    coding: float = 0.05
    seed: int = 1
    real: bool = False


PRESETS = {
    "small": Scale(chromosomes=("1", "2"), records=300, instances=3, populations=("EUR", "GBR"), draws=50),
    "demo": Scale(),
    "real": Scale(instances=3, populations=("ALL", "EUR", "GBR"), draws=100, real=True),
}


def write_chromosome(directory: Path, chromosome: str, scale: Scale) -> None:
    """Write chrC.vcf and chrC.annotation.vcf."""
    source = random.Random(f"{scale.seed}:{chromosome}")
    names, group_of = sample_names(scale.samples)
    genotypes = Genotypes(names, group_of, source)
    with (
        open(directory / f"chr{chromosome}.vcf", "wb") as vcf,
        open(directory / f"chr{chromosome}.annotation.vcf", "wb") as annotation,
    ):
        annotation.write(annotation_header())
        if scale.real:
            vcf.write(gzip.decompress(SITES.read_bytes()))
            sites = iter(read_sites(SITES, chromosome))
        else:
            vcf.write(genotype_header(names))
            sites = sites_of(chromosome, scale.records)
        for number, site in enumerate(sites):
            if not scale.real:
                vcf.write(genotype_record(chromosome, site, genotypes))
            annotation.write(annotation_record(chromosome, number, site, scale.coding, source))


def write_populations(directory: Path, scale: Scale) -> str:
    """Write population files if there are generated samples to add; return where the job file finds them."""
    names, group_of = sample_names(scale.samples)
    generated = [name for name in names if name.startswith("GENERATED")]
    if not generated:
        return "../../data/populations"
    (directory / "populations").mkdir(exist_ok=True)
    for population in POPULATIONS:
        members = [name for name in generated if population in ("ALL", group_of[name])]
        text = (DATA / "populations" / population).read_text() + "".join(f"{name}\n" for name in members)
        (directory / "populations" / population).write_text(text)
    return "populations"


def job_text(populations: str, scale: Scale) -> str:
    """The job file, with paths relative to it."""

    ranges = [f"{number}of{scale.instances}" for number in range(1, scale.instances + 1)]

    def files(paths: list[str]) -> list[str]:
        return [f"  - {{class: File, location: {path}}}" for path in paths]

    return "\n".join(
        [
            f"# {marker(scale)}",
            f"chromosomes: [{', '.join(f'chr{name}' for name in scale.chromosomes)}]",
            "vcf:",
            *files([f"chr{name}.vcf" for name in scale.chromosomes]),
            "annotation:",
            *files([f"chr{name}.annotation.vcf" for name in scale.chromosomes]),
            "populations:",
            *files([f"{populations}/{name}" for name in scale.populations]),
            f"ranges: [{', '.join(ranges)}]",
            f"draws: {scale.draws}",
            "",
        ]
    )


def marker(scale: Scale) -> str:
    """What a job file was generated with."""
    return "generated with " + " ".join(f"{name}={value}" for name, value in asdict(scale).items())


def parse_arguments() -> tuple[str, Scale]:
    """Name and scale from the command line; exits with a message when they make no sense."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="written into generated/NAME")
    parser.add_argument("--chromosomes", help="comma-separated, of 1 to 22")
    parser.add_argument("--records", type=int, help=f"variants per chromosome, 1 to {MAX_RECORDS}")
    parser.add_argument("--samples", type=int, help="10 or more; beyond 2504 they are generated")
    parser.add_argument("--instances", type=int, help="`individuals` jobs per chromosome")
    parser.add_argument("--populations", help=f"comma-separated, of {', '.join(POPULATIONS)}")
    parser.add_argument("--draws", type=int, help="random groups in `frequency`")
    parser.add_argument("--coding", type=float, help="part of the variants that get a SIFT score, 0 to 1")
    parser.add_argument("--seed", type=int)
    arguments = vars(parser.parse_args())
    name = str(arguments.pop("name"))
    changes = {key: value for key, value in arguments.items() if value is not None}
    for key in ("chromosomes", "populations"):
        if key in changes:
            changes[key] = tuple(changes[key].split(","))
    scale = replace(PRESETS.get(name, PRESETS["demo"]), **changes)
    allowed = {
        "--chromosomes": set(scale.chromosomes) <= {str(number) for number in range(1, 23)},
        "--records": 1 <= scale.records <= MAX_RECORDS,
        "--samples": scale.samples >= 10,
        "--instances": scale.instances >= 1,
        "--populations": set(scale.populations) <= set(POPULATIONS),
        "--draws": scale.draws >= 1,
        "--coding": 0 <= scale.coding <= 1,
        "NAME (letters, digits, - and _)": name.replace("-", "").replace("_", "").isalnum(),
    }
    for option, fine in allowed.items():
        if not fine:
            parser.error(f"{option}: not allowed, see --help")
    return name, scale


def main() -> None:
    name, scale = parse_arguments()
    directory = HERE / "generated" / name
    job = directory / "job.yml"
    if job.exists() and job.read_text().startswith(f"# {marker(scale)}\n"):
        print(f"{job}: up to date")
        return
    directory.mkdir(parents=True, exist_ok=True)
    job.unlink(missing_ok=True)
    for chromosome in scale.chromosomes:
        write_chromosome(directory, chromosome, scale)
    job.write_text(job_text(write_populations(directory, scale), scale))
    print(job)


if __name__ == "__main__":
    main()
