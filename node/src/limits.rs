//! Keeps the I/O of a job below a rate.

pub mod pace;
pub mod throttle;
pub mod writeback;
