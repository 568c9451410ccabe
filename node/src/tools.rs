//! Commands that examine files, or this machine, and need no job.

pub mod excerpt;
pub mod identity;
pub mod programs;
pub mod refused;
pub mod unlike;
