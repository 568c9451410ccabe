//! Access to what the kernel and the file systems offer to any program.

pub mod beside;
pub mod exit;
pub mod fd_passing;
pub mod file_id;
pub mod file_limit;
pub mod memory;
pub mod own_program;
pub mod ownership;
pub mod pipe;
pub mod random;
pub mod raw;
pub mod remote_file;
pub mod signals;
pub mod symbolic_links;
pub mod tail;
#[cfg(test)]
pub mod test_random;
pub mod threads;
pub mod watch;
pub mod write_lock;
