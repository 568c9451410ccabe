//! The driver is on this machine, and says what it wants on the standard input.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::kill;
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use super::Server;
use crate::exec::CANCEL_NOTICE;
use crate::json::Json;

impl Server {
    /// Serves until the standard input has ended.
    pub(super) fn serve_here(&mut self, signals: &SignalFd) {
        let stdin = io::stdin();
        while self.heard {
            let mut descriptors = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            let timeout = self.tick().and_then(|tick| PollTimeout::try_from(tick).ok());
            let _ = poll(&mut descriptors, timeout);
            let ready = descriptors.map(|descriptor| descriptor.any().unwrap_or(false));
            self.take_notices();
            if ready[2] || (ready[0] && !self.take_requests()) {
                break;
            }
        }
    }

    /// Reads requests; false at their end.
    fn take_requests(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let length = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(length) => length,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return true,
            Err(_) => 0,
        };
        self.requests.extend(&buffer[..length]);
        while let Some(end) = self.requests.iter().position(|byte| *byte == b'\n') {
            let request: Vec<u8> = self.requests.drain(..=end).collect();
            if let Err(message) = self.obey(&request) {
                eprintln!("sfio-node: serve: {message}: {}", String::from_utf8_lossy(&request).trim_end());
            }
        }
        length > 0
    }

    fn obey(&mut self, request: &[u8]) -> Result<(), String> {
        let request = Json::parse(request)?;
        let id = request.get("cancel").and_then(Json::text).ok_or("has to be {\"cancel\": ID}")?;
        let id = OsStr::from_bytes(id);
        if Path::new(id).components().count() != 1 || id == ".." {
            return Err("no such job".into());
        }
        let cancel = self.jobs.join(id).join("cancel");
        File::create(&cancel).map_err(|error| format!("{}: {error}", cancel.display()))?;
        // A job that watches nothing looks for its cancel file only now and then.
        if let Some(pid) = self.running.get(id).and_then(|running| running.pid) {
            let _ = kill(Pid::from_raw(pid), CANCEL_NOTICE);
        }
        Ok(())
    }
}
