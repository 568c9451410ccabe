//! The entries of an ELF file that name the files to load with it.

use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use crate::sys::remote_file;

type Bytes<'a> = &'a ReadCache<File>;

/// The dynamic entries of a program or a library. A statically linked one needs nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    pub kind: Kind,
    pub needed: Vec<Vec<u8>>,
    /// Directories, separated by colons.
    pub rpath: Vec<u8>,
    pub runpath: Vec<u8>,
    /// The dynamic loader. Empty in a library.
    pub interpreter: Vec<u8>,
}

/// Class and machine of a file. The loader skips libraries of another kind than the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    is_64: bool,
    machine: u16,
}

/// Reads a file. Returns None if it is no ELF file, or is damaged.
pub fn read(file: &Path) -> Option<Object> {
    let bytes = ReadCache::new(remote_file::open(file).ok()?);
    match FileKind::parse(&bytes).ok()? {
        FileKind::Elf32 => of::<elf::FileHeader32<Endianness>>(&bytes, false),
        FileKind::Elf64 => of::<elf::FileHeader64<Endianness>>(&bytes, true),
        _ => None,
    }
}

fn of<'a, Elf: FileHeader<Endian = Endianness>>(bytes: Bytes<'a>, is_64: bool) -> Option<Object> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let mut found = Object { kind: Kind { is_64, machine: header.e_machine(endian).0 }, ..Object::default() };
    let mut strings = None;
    let mut named = Vec::new();
    for segment in segments {
        if let Ok(Some(interpreter)) = segment.interpreter(endian, bytes) {
            found.interpreter = interpreter.to_vec();
        }
        for entry in segment.dynamic(endian, bytes).ok().flatten().unwrap_or_default() {
            let value = entry.d_val(endian).into();
            match entry.d_tag(endian) {
                elf::DT_NULL => break,
                elf::DT_STRTAB => strings = Some(value),
                tag @ (elf::DT_NEEDED | elf::DT_RPATH | elf::DT_RUNPATH) => named.push((tag, value)),
                _ => (),
            }
        }
    }
    let in_file = |address: u64| {
        segments.iter().find_map(|segment| {
            let (begin, size) = (segment.p_vaddr(endian).into(), segment.p_filesz(endian).into());
            let is_there = segment.p_type(endian) == elf::PT_LOAD && address >= begin && address - begin < size;
            is_there.then(|| segment.p_offset(endian).into().checked_add(address - begin)).flatten()
        })
    };
    for (tag, value) in named {
        let Some(place) = strings.and_then(in_file).and_then(|begin| begin.checked_add(value)) else { continue };
        let end = place.saturating_add(4096).min(bytes.len().ok()?);
        let Ok(text) = bytes.read_bytes_at_until(place..end, 0) else { continue };
        match tag {
            elf::DT_NEEDED => found.needed.push(text.to_vec()),
            elf::DT_RPATH => found.rpath = text.to_vec(),
            _ => found.runpath = text.to_vec(),
        }
    }
    Some(found)
}
