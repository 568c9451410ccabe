//! Commands that look at files, or at this machine, and need no job.

pub mod excerpt;
pub mod identity;
pub mod programs;
pub mod refused;
pub mod unlike;
