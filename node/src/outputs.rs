//! The outputs of a command, and when each file of them is committed.

pub mod commit;
pub mod directories;
pub mod hold;
pub mod rewrites;
pub mod token;
pub mod window;
