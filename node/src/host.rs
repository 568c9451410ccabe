//! Processes that the driver starts on a host beside the jobs themselves.

pub mod memory;
pub mod read;
pub mod run;
pub mod serve;
