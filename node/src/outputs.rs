//! What a command writes, and when a file of it is committed.

pub mod commit;
pub mod directories;
pub mod hold;
pub mod rewrites;
pub mod token;
