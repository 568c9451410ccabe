//! Examines the processes of a job in `/proc`.

pub mod active_time;
pub mod io_counters;
pub mod open_files;
pub mod snapshot;
pub mod tree;
pub mod usage;
pub mod watchdog;
