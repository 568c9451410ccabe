//! The run directory of a job on this machine, with a `serve` of its own.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::host::serve;
use crate::sys::own_program::own_program;
use crate::sys::ownership;
use crate::sys::random::random;
use crate::sys::remote_file;

/// How long `serve` may take to start, and to end, which it does within 10 s.
const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Local {
    directory: PathBuf,
    /// The directory of the job.
    pub job: PathBuf,
    /// Ends with its standard input, which ends with this process, however that ends.
    serve: Child,
    news: Option<ChildStdout>,
}

impl Local {
    /// Makes the run directory, with the job in it.
    ///
    /// # Errors
    /// A message; nothing is left.
    pub fn start(shared: &Path) -> Result<Self, String> {
        let random = random().map(u32::from_ne_bytes).map_err(|error| format!("/dev/urandom: {error}"))?;
        let name = format!("streamflow-io-{}-{random:08x}", std::process::id());
        let directory = directory_for_temporary_files(shared).join(name);
        let at = |error: io::Error| format!("{}: {error}", directory.display());
        let mut serve = own_program();
        // Out of reach of Ctrl-C, like that of the driver.
        serve.arg("serve").arg("--directory").arg(&directory).process_group(0);
        let mut serve = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(at)?;
        let news = serve.stdout.take();
        let job = directory.join("jobs").join(shared.file_name().unwrap_or_default());
        let mut local = Self { directory, job, serve, news };
        let made = local.wait_until_ready().and_then(|()| local.make_job(shared));
        match made {
            Ok(()) => Ok(local),
            Err(message) => {
                local.close();
                Err(message)
            }
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let serve = || format!("sfio-node serve --directory {}", self.directory.display());
        let Some(news) = &self.news else { return Err(format!("{} has no output", serve())) };
        let mut descriptors = [PollFd::new(news.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut descriptors, PollTimeout::try_from(START).unwrap_or(PollTimeout::ZERO));
        if descriptors[0].any() != Some(true) {
            return Err(format!("{} does not start within {} s", serve(), START.as_secs()));
        }
        // `serve` has said why, on the standard error of both processes.
        self.take_news().then_some(()).ok_or_else(|| format!("{} does not start", self.directory.display()))
    }

    fn make_job(&self, shared: &Path) -> Result<(), String> {
        let made = DirBuilder::new().mode(0o700).create(&self.job);
        made.map_err(|error| format!("{}: {error}", self.job.display()))?;
        let job = shared.join("job.json");
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.job.join("job.json"));
        let copied = remote_file::open(&job).and_then(|mut from| io::copy(&mut from, &mut create()?));
        copied.map(drop).map_err(|error| format!("{}: {error}", job.display()))
    }

    /// Readable when something has happened.
    pub fn news(&self) -> Option<BorrowedFd<'_>> {
        self.news.as_ref().map(AsFd::as_fd)
    }

    /// To be called when `news` is readable; false: `serve` has ended.
    pub fn take_news(&mut self) -> bool {
        let taken = self.news.as_mut().is_some_and(|news| matches!(news.read(&mut [0; 4096]), Ok(1..)));
        if !taken {
            self.news = None;
        }
        taken
    }

    /// Cancels the job.
    pub fn cancel(&self) -> io::Result<()> {
        File::create(self.job.join("cancel")).map(drop)
    }

    /// Ends the job as when the driver is gone.
    pub fn leave(&mut self) {
        self.serve.stdin = None;
    }

    /// Ends `serve`, what is left of the job, and the directory.
    pub fn close(mut self) {
        self.leave();
        // What it still prints need not be read.
        self.news = None;
        let deadline = Instant::now() + END;
        // The last act of `serve` is to remove the directory. Its exit takes some 10 ms more, for which the job need
        // not wait.
        while self.directory.exists() && matches!(self.serve.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.directory.exists() {
            let _ = self.serve.kill();
            let _ = self.serve.wait();
            serve::clear(&self.directory);
        }
    }
}

/// The directory for temporary files of this machine. `TMPDIR` may lead to the shared file system, where sockets and
/// locks may not work.
fn directory_for_temporary_files(shared: &Path) -> PathBuf {
    let device = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_dir).map(|found| found.dev());
    let safe =
        |path: &PathBuf| matches!(path.canonicalize().and_then(|path| ownership::stranger(&path, &[], &[])), Ok(None));
    let candidates: Vec<PathBuf> = [env::temp_dir(), "/tmp".into()].into_iter().filter(safe).collect();
    let elsewhere = |path: &&PathBuf| path.is_absolute() && device(path).is_some_and(|own| Some(own) != device(shared));
    let exists = |path: &&PathBuf| path.is_absolute() && device(path).is_some();
    let chosen = candidates.iter().find(elsewhere).or_else(|| candidates.iter().find(exists));
    chosen.cloned().unwrap_or_else(|| "/tmp".into())
}
