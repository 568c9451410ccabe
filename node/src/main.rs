//! sfio-node: the node runtime of StreamFlow-IO. `docs/node-protocol.md` is the contract with the driver.

mod cut;
mod exec;
mod gate;
mod host;
mod inputs;
mod limits;
mod link;
mod outputs;
mod processes;
mod protocol;
mod streams;
mod sys;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{value_parser, Parser};

use self::host::{memory, read, run, serve};
use self::processes::usage::Spent;
use self::processes::watchdog;
use self::protocol::{liveness, verify};
use self::sys::raw;
use self::tools::{excerpt, identity, programs, refused, unlike};

/// Version of the program and number of the protocol. A change that an older driver would not understand raises this
/// number, here and in `streamflow_io/runtime/binary.py`.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " protocol 14");

/// The node runtime of StreamFlow-IO
#[derive(Parser)]
#[command(name = "sfio-node", version = VERSION)]
enum Command {
    /// Serve the jobs of one driver: pass on their events, and end them with the driver
    Serve(serve::Options),
    /// End processes of jobs whose serve and exec were killed, and remove their run directory: exit code 1 if one is
    /// still alive
    Clear {
        /// The run directory
        #[arg(long, value_name = "PATH")]
        directory: PathBuf,
    },
    /// Try whether a serve with the certificate of the run answers at an address, or whether a serve is alive on this
    /// kernel
    Reach {
        /// The address of the serve
        #[arg(value_name = "IP:PORT", requires = "certificate", required_unless_present = "run")]
        address: Option<String>,
        /// The file with the certificate of the run, next to its private key
        #[arg(long, value_name = "PATH", requires = "address")]
        certificate: Option<PathBuf>,
        /// The run directory of a serve on this kernel, as it is seen from here
        #[arg(long, value_name = "PATH", conflicts_with = "address")]
        run: Option<PathBuf>,
    },
    /// Have a command read a file or directory of another machine, as an archive of tar: exit code 1 if the archive has
    /// not come to its end
    Receive {
        /// The address of the serve there
        #[arg(value_name = "IP:PORT")]
        address: String,
        /// The file with the certificate of the run, next to its private key
        #[arg(long, value_name = "PATH")]
        certificate: PathBuf,
        /// Encrypt the archive, as that serve wants it
        #[arg(long)]
        tls: bool,
        /// The file or directory there
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// Check whether a file begins with the bytes that a job has read of it: exit code 0, or 1 if not
    Compare {
        /// The file
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
        /// The bytes, as in `first` of the event of the stream
        #[arg(long, value_name = "JSON")]
        first: String,
    },
    /// Print where a rule cuts a file into parts, one line of JSON for each, or compare with existing parts: exit code
    /// 1 if something is different
    Cut {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// Records, how many are a part, and how parts are named
        #[arg(long, value_name = "JSON")]
        rule: String,
        /// The directory of the parts
        #[arg(long, value_name = "DIRECTORY")]
        compare: Option<PathBuf>,
    },
    /// Print which lines of two files differ, of text or of text compressed by bgzip: exit code 1 if something else
    /// differs
    Unlike {
        /// The one file
        #[arg(long, value_name = "PATH")]
        one: PathBuf,
        /// The other file
        #[arg(long, value_name = "PATH")]
        other: PathBuf,
    },
    /// Print a rule by which a split may have cut a file into existing parts: exit code 1 if there is none
    Propose {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// The directory of the parts
        #[arg(long, value_name = "DIRECTORY")]
        directory: PathBuf,
        /// The names of the parts, with one %d for the number
        #[arg(long, value_name = "NAMES")]
        names: OsString,
        /// The number of the first part
        #[arg(long, value_name = "NUMBER")]
        first: u64,
        /// The number of parts
        #[arg(long, value_name = "NUMBER")]
        count: u64,
    },
    /// Print the real path of a file, and its identity: exit code 1 if the file is missing, or not the one asked for
    Identity {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// The identity that the file should have
        #[arg(long, value_name = "JSON")]
        is: Option<String>,
    },
    /// Print what distinguishes programs from others with the same name, one line of JSON for each, or a dash if there
    /// is none
    Programs {
        /// Names, which are searched in PATH, or paths
        #[arg(value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Make a file of the first bytes of another one, up to the end of a line, and print how many they are
    Excerpt {
        /// The file
        #[arg(long, value_name = "PATH")]
        of: PathBuf,
        /// The new file
        #[arg(long, value_name = "PATH")]
        to: PathBuf,
        /// The most bytes of the new file
        #[arg(long, value_name = "NUMBER")]
        bytes: u64,
    },
    /// Print which system calls are refused here, as in many containers, one name in a line
    Refused,
    /// Print how much memory is available here
    Memory {
        /// Make the directory in memory of a run
        #[arg(long, value_name = "PATH")]
        directory: Option<PathBuf>,
        /// A directory there whose size is printed, too
        #[arg(long, value_name = "NAME")]
        of: Vec<PathBuf>,
    },
    /// Run a command as a job, and end as it ends
    Exec {
        /// The directory of the job, with job.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
        #[arg(long, hide = true, default_value_t = 0)]
        grace: u64,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// Bring parts of a file into the page cache, before jobs read them
    Read {
        /// The directory of the session, with session.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
    },
    /// Run a command as a job on a machine that shares the run directory, and end as it ends
    Run {
        /// The directory of the job, with job.json
        #[arg(long, value_name = "PATH")]
        job: PathBuf,
        /// How long the driver may give no sign of life before the job is cancelled
        #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
        patience: u64,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// Started by exec for a command that has gates or byte streams, or is observed
    #[command(hide = true)]
    Launch {
        #[arg(long)]
        socket: i32,
        #[arg(long, value_parser = gate::Purpose::read)]
        purpose: gate::Purpose,
        #[arg(last = true, required = true, value_name = "command")]
        command: Vec<OsString>,
    },
    /// Started by exec when processes outlive a job that had gates, or was observed
    #[command(hide = true)]
    PassThrough,
    /// Started by exec for a job that it may pause
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        job: PathBuf,
    },
    /// Started by memory for the directory of a run
    #[command(hide = true)]
    GuardMemory {
        #[arg(long)]
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    let spent = Spent::by_now();
    let command = Command::parse();
    // Processes of jobs must not be able to change what this process reports about them.
    let tells =
        matches!(command, Command::Serve(_) | Command::Exec { .. } | Command::Run { .. } | Command::Read { .. });
    raw::shield(tells);
    let code = match command {
        Command::Serve(options) => serve::run(&options),
        Command::Clear { directory } => serve::clear(&directory),
        Command::Reach { run: Some(run), .. } => liveness::reach(&run),
        Command::Reach { address, certificate, .. } => {
            link::reach(&address.unwrap_or_default(), &certificate.unwrap_or_default())
        }
        Command::Receive { address, certificate, tls, of, command } => {
            link::receive(&address, &certificate, tls, &of, &command)
        }
        Command::Compare { file, first } => verify::compare(&file, &first),
        Command::Cut { of, rule, compare } => cut::run(&of, &rule, compare.as_deref()),
        Command::Propose { of, directory, names, first, count } => cut::propose(&of, &directory, &names, first, count),
        Command::Unlike { one, other } => unlike::run(&one, &other),
        Command::Programs { words } => programs::run(&words),
        Command::Identity { of, is } => identity::run(&of, is.as_deref()),
        Command::Excerpt { of, to, bytes } => excerpt::run(&of, &to, bytes),
        Command::Refused => refused::run(),
        Command::Memory { directory, of } => memory::run(directory.as_deref(), &of),
        Command::Exec { job, grace, command } => exec::run(&job, &command, Duration::from_millis(grace), spent),
        Command::Read { job } => read::run(&job),
        Command::Run { job, patience, command } => run::run(&job, &command, Duration::from_secs(patience)),
        Command::Launch { socket, purpose, command } => gate::launch(socket, purpose, &command),
        Command::PassThrough => gate::pass_through(),
        Command::Guard { job } => watchdog::run(&job),
        Command::GuardMemory { directory } => memory::guard(&directory),
    };
    // An exit code of a process has only these bits.
    ExitCode::from((code & 0xFF) as u8)
}
