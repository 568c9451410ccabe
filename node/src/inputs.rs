//! The inputs of a command: byte streams that are fed to it, and parts that it finds as files.

pub mod feed;
pub mod placement;
