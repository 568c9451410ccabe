//! The processes of a job: what `/proc` says of them.

pub mod active_time;
pub mod io_counters;
pub mod open_files;
pub mod snapshot;
pub mod tree;
pub mod usage;
pub mod watchdog;
