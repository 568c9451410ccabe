//! Keeps what a job moves below a rate.

pub mod pace;
pub mod throttle;
pub mod writeback;
