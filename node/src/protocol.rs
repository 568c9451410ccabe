//! The contract with the driver (`docs/node-protocol.md`): the run directory, and the JSON in it.

pub mod event;
pub mod fd_store;
pub mod job;
pub mod json;
pub mod limit_file;
pub mod liveness;
pub mod memory_directory;
pub mod messages;
pub mod part;
pub mod pattern;
pub mod registration;
pub mod results;
pub mod values;
pub mod verify;
pub mod wording;
