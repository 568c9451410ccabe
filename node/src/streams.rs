//! Where the bytes of a stream come from: the growing file of a producer, or a part of a file.

pub mod acknowledgements;
pub mod announced_parts;
pub mod origin;
pub mod part_reader;
pub mod part_writer;
pub mod producer;
pub mod source;
