//! Keeps the I/O of a job below a rate, or its output near its readers.

pub mod hold;
pub mod pace;
pub mod pause;
pub mod throttle;
pub mod writeback;
